"""Memory layouts as tokens: two values have the same layout when their tokens are equal."""

import functools
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.errors import UsageError

__all__ = ["ANY", "BFYX", "BYXF", "FYXB", "NHWC", "PLAIN", "YXFB", "Layout"]


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The order of a dense tensor in memory. Dimensions stay those of the operator; only their order in memory changes.

    `PLAIN` is row-major in the order of the dimensions (BFYX, NCHW), for any rank. Permutations have the names of the
    OpenCL custom-layer format. `nCw16c`, `nChw16c` and `nCdhw16c` (and with other numbers) keep the channels in blocks, filled
    up to whole ones: [N, C, H, W] is stored as [N, ceil(C / 16), H, W, 16]. Any other name is a device's own token: opaque to the
    core, which only compares it. `ANY` is for configurations only: whatever layout comes in.
    """

    name: str

    def __new__(cls, name: str) -> "Layout":
        # One object for each name: plans compare layouts and look them up a hundred thousand times.
        return _LAYOUTS.setdefault(name, object.__new__(cls))

    def __reduce__(self) -> tuple[Any, ...]:
        return Layout, (self.name,)

    def order(self, rank: int) -> tuple[int, ...]:
        """The dimensions from outermost to innermost in memory. Raises `UsageError` for opaque tokens and unfit ranks."""
        if not self.fits(rank):
            raise UsageError(f"layout {self.name} has no order of {rank} dimensions")
        if self.name == "PLAIN":
            return tuple(range(rank))
        return (0, *range(2, rank), 1) if self.name == "BYXF" else _ORDERS[self.name]

    @property
    def is_permutation(self) -> bool:
        """True when `order` is defined (for ranks that fit)."""
        return self.name in ("PLAIN", *_ORDERS)

    @property
    def block(self) -> int:
        """The channels of one block, 16 for `nChw16c`; 0 for layouts without blocks."""
        return _blocks(self.name)[1]

    def memory_dims(self, dims: tuple[int, ...]) -> tuple[int, ...]:
        """Dimensions in the order of memory, blocks innermost. Raises `UsageError` for opaque tokens and unfit ranks."""
        rank, block = _blocks(self.name)
        if not block:
            return tuple([dims[d] for d in self.order(len(dims))])
        if len(dims) != rank:
            raise UsageError(f"layout {self.name} has {rank} dimensions, not {len(dims)}")
        return (dims[0], -(-dims[1] // block), *dims[2:], block)

    def fits(self, rank: int) -> bool:
        """True when `order` is defined for this rank."""
        return self.name == "PLAIN" or (self.name in _ORDERS and (rank == 4 or (self.name == "BYXF" and rank >= 3)))

    @staticmethod
    def of(name: str) -> "Layout":
        """A layout by name, in capitals or not: `bfyx` and `NCHW` are `PLAIN`, `NHWC` is `BYXF`; others become tokens.

        Blocked layouts and tokens are taken as they are written.
        """
        return Layout(_SYNONYMS.get(name.upper(), name.upper() if name.upper() in _ORDERS else name))

    def __str__(self) -> str:
        return self.name


_LAYOUTS: dict[str, Layout] = {}
_ORDERS = {"BYXF": (0, 2, 3, 1), "YXFB": (2, 3, 1, 0), "FYXB": (1, 2, 3, 0)}


@functools.cache
def _blocks(name: str) -> tuple[int, int]:
    """The rank of a blocked layout, and the channels of one block; 0 for others."""
    if not (name.startswith("nC") and name.endswith("c")):
        return 0, 0
    axes = name[2:-1].rstrip("0123456789")
    size = name[2 + len(axes) : -1]
    return (len(axes) + 2, int(size)) if axes in ("w", "hw", "dhw") and size.lstrip("0") == size != "" else (0, 0)


_SYNONYMS = {"BFYX": "PLAIN", "NCHW": "PLAIN", "PLAIN": "PLAIN", "NHWC": "BYXF", "ANY": "ANY"}

ANY = Layout("ANY")
"""In configurations: whatever layout comes in."""
PLAIN = BFYX = Layout("PLAIN")
"""Row-major in the order of the dimensions: NCHW."""
BYXF = NHWC = Layout("BYXF")
"""Channels innermost: NHWC, for any rank from 3."""
YXFB = Layout("YXFB")
"""Batch innermost, channels before it; rank 4."""
FYXB = Layout("FYXB")
"""Channels outermost, batch innermost; rank 4."""
