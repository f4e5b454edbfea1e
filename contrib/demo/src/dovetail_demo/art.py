"""Digits as text."""

import sys
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

if TYPE_CHECKING:
    from dovetail_demo.measure import DeviceResult, Digits

__all__ = ["picture_lines", "show_digits"]

_BLOCKS = " ░▒▓█"
_LETTERS = " .:*#"
_SHOWN = 4
_GAP = "    "


def show_digits(digits: "Digits", result: "DeviceResult") -> str:
    """The first pictures side by side, the last of them a misread one if there is any, each with what the device read."""
    read, probabilities = result.predictions, result.probabilities
    assert read is not None, "only results that have probabilities are shown"
    assert probabilities is not None, "only results that have probabilities are shown"
    chosen = list(range(min(_SHOWN, len(digits))))
    if (wrong := (read != digits.labels).nonzero()[0]).size:
        chosen[-1] = max(int(wrong[0]), chosen[-1])
    blocks = [
        [*picture_lines(digits.images[i]), *_caption(int(digits.labels[i]), int(read[i]), float(probabilities[i].max()))]
        for i in chosen
    ]
    width = max(len(line) for block in blocks for line in block)
    return "\n".join(_GAP.join(part.ljust(width) for part in parts).rstrip() for parts in zip(*blocks, strict=True))


def picture_lines(image: NDArray[Any]) -> list[str]:
    """A picture [H, W] of values 0 to 16, one line a row, two characters a pixel."""
    shades = _BLOCKS if _can_print(_BLOCKS) else _LETTERS
    return ["".join(shades[(int(value) * (len(shades) - 1) + 8) // 16] * 2 for value in row) for row in image]


def _caption(label: int, read: int, probability: float) -> tuple[str, str]:
    return f"read {read} ({probability:.1%})", "right" if read == label else f"wrong: it is {label}"


def _can_print(text: str) -> bool:
    try:
        text.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return False
    return True
