"""Decoders whose states grow: each run joins rows for its tokens to those of all runs before."""

from collections.abc import Mapping

from dovetail.dataclass import dataclass

__all__ = ["LENGTH", "Grown", "Growth"]

LENGTH = "cache_length"
"""The input, which no node reads, that tells the pass `hold_caches` how many tokens each text has: int64 [1]."""


@dataclass(frozen=True)
class Grown:
    """A state in the graph: the value `read` with its rows in the order of the texts, and `written`, that with the new ones."""

    read: str
    written: str


@dataclass(frozen=True)
class Growth:
    """How all states of a model grow, [batch, ...] each, by new rows along `axis`. A frontend declares it.

    `tokens` is the input with the new tokens [batch, tokens, ...], `mask` that with a value for each token so far
    [batch, length], and `order` that with, for each text, the one of the run before that it continues [batch]; "" where absent.
    """

    states: Mapping[str, Grown]
    axis: int
    tokens: str
    mask: str = ""
    order: str = ""
