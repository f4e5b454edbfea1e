"""The part of an axis that a shifted or strided view reads from the input, and the part that falls on padding."""

from dovetail.dataclass import dataclass

__all__ = ["Reach"]


@dataclass(frozen=True, slots=True)
class Reach:
    """Which of `count` positions along an axis read the input: position i reads element `offset + i * stride`.

    Positions from `first` up to `end` read the input of `size` elements, the others read padding.
    """

    count: int
    stride: int
    offset: int
    size: int

    @property
    def first(self) -> int:
        """The first position inside."""
        return min(self.count, max(0, -(self.offset // self.stride)))

    @property
    def end(self) -> int:
        """The position after the last one inside."""
        return max(self.first, min(self.count, -((self.offset - self.size) // self.stride)))

    @property
    def is_full(self) -> bool:
        """True when all positions read the input."""
        return self.end - self.first == self.count

    @property
    def positions(self) -> slice:
        """The positions inside."""
        return slice(self.first, self.end)

    @property
    def elements(self) -> slice:
        """The elements that they read."""
        start, length = self.offset + self.first * self.stride, self.end - self.first
        return slice(start, start + (length - 1) * self.stride + 1, self.stride) if length else slice(0, 0)
