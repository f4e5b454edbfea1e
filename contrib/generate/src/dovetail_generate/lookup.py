"""Prompt lookup: a guess at the next tokens from what followed the last ones earlier in the text.

https://github.com/apoorvumang/prompt-lookup-decoding. The model checks all guesses in one run.
"""

from collections.abc import Sequence

__all__ = ["guess"]

_LONGEST, _SHORTEST = 4, 2
"""How many of the last tokens must have come before, tried in this order."""


def guess(text: Sequence[int], count: int) -> list[int]:
    """At most `count` tokens that followed the latest earlier place with the same last tokens; none without such a place."""
    text = list(text)
    for size in range(_LONGEST, _SHORTEST - 1, -1):
        tail = text[-size:]
        for start in range(len(text) - size - 1, -1, -1):
            if text[start] == tail[0] and text[start : start + size] == tail:
                return text[start + size : start + size + count]
    return []
