"""Shapes and tensor types."""

import math
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.graph.dtype import DType
from dovetail.graph.layout import PLAIN, Layout
from dovetail.names import printable

__all__ = [
    "ANONYMOUS",
    "CONTAINERS",
    "MAX_RANK",
    "Dim",
    "MapType",
    "OptionalType",
    "SequenceType",
    "Shape",
    "TensorType",
    "array_bytes",
    "as_constant",
    "one_of",
    "read_only",
    "same_bytes",
]

Dim = int | str | None
"""A dimension: its size, the name of a symbol, or None where nothing is known."""

ANONYMOUS = frozenset({"", "?", "-1", "None", "unknown"})
"""Names that exporters give to any dimension that they know nothing of: two of them need not have the same size."""

Shape = tuple[Dim, ...]
"""One `Dim` for each dimension, the outermost first."""

MAX_RANK = 64
"""NumPy's limit on dimensions."""

_NUMBERS = frozenset({int})


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a value: element type, shape, and the content where it is known while planning.

    `shape` is None when not even the rank is known. `value` is a read-only array for constants (and for results that
    were computed while planning); it takes no part in equality. `layout` is the order of the dimensions in memory.
    """

    dtype: DType
    shape: Shape | None
    value: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    layout: Layout = PLAIN
    # Asked thousands of times for each plan.
    _dims: tuple[int, ...] | None = field(default=None, init=False, compare=False, repr=False)

    @staticmethod
    def of(array: NDArray[Any], *, known: bool = False) -> "TensorType":
        """The type of an array; with `known`, the array itself as its value."""
        return TensorType(DType.of(array.dtype), array.shape, array if known else None)

    @property
    def is_static(self) -> bool:
        """True when every dimension is a number."""
        return self._dims is not None or (self.shape is not None and _NUMBERS.issuperset(map(type, self.shape)))

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape as numbers. Raises `ValueError` unless `is_static`."""
        found = self._dims
        if found is None:
            if not self.is_static:
                raise ValueError(f"the shape of {self} is not static")
            object.__setattr__(self, "_dims", self.shape)
            return self.shape  # type: ignore[return-value]  # checked just above, as mypy cannot see
        return found

    @property
    def rank(self) -> int:
        """The number of dimensions. Raises `ValueError` when it is not known."""
        if self.shape is None:
            raise ValueError(f"the rank of {self} is not known")
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements. Raises `ValueError` unless `is_static`."""
        return math.prod(self._dims or self.dims)  # mostly without asking the property, here and below

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor. Raises `ValueError` unless `is_static`."""
        return math.prod(self._dims or self.dims) * self.dtype.itemsize

    def with_shape(self, shape: Shape | None) -> "TensorType":
        """The same element type with another shape and no known value."""
        if shape is self.shape and self.value is None and self.layout is PLAIN and type(self) is TensorType:
            return self  # what compares types meets one object more often
        return TensorType(self.dtype, shape)

    def with_dtype(self, dtype: DType) -> "TensorType":
        """The same shape with another element type and no known value."""
        return TensorType(dtype, self.shape)

    def with_layout(self, layout: Layout) -> "TensorType":
        """The same type lying otherwise in memory; `value` keeps its dimensions."""
        return self if layout == self.layout else TensorType(self.dtype, self.shape, self.value, layout)

    @property
    def order(self) -> tuple[int, ...]:
        """The dimensions from outermost to innermost in memory. Raises `UsageError` for an opaque or blocked layout."""
        return self.layout.order(self.rank)

    @property
    def memory_dims(self) -> tuple[int, ...]:
        """The shape in memory order: [N, C, H, W] in NHWC is [N, H, W, C]. Raises as `dims` and `Layout.memory_dims` do."""
        dims = self.dims
        return dims if self.layout == PLAIN else self.layout.memory_dims(dims)

    def __str__(self) -> str:
        if self.layout != PLAIN:
            return f"{TensorType(self.dtype, self.shape)}@{self.layout}"
        if self.shape is None:
            return f"{self.dtype}[...]"
        return f"{self.dtype}[{', '.join('?' if d is None else printable(str(d)) for d in self.shape)}]"


@dataclass(frozen=True, slots=True)
class MapType(TensorType):
    """A dictionary from int64 or strings (`keys`) to numbers or strings (`dtype`), in Python a `dict` of plain values.

    Its shape is None: it is never static. Only nodes that run on the host touch such values; see `passes.defer`.
    """

    keys: DType = DType.INT64

    def __str__(self) -> str:
        return f"map({self.keys}, {self.dtype})"


@dataclass(frozen=True, slots=True)
class SequenceType(TensorType):
    """A list of tensors of one element type, in Python a `list` of arrays; with `keys` a list of maps from that type.

    Its shape is None: it is never static. Only nodes that run on the host touch such values; see `passes.defer`.
    """

    keys: DType | None = None

    @property
    def items(self) -> TensorType:
        """The type of each element: a map, or a tensor of unknown shape."""
        return TensorType(self.dtype, self.shape) if self.keys is None else MapType(self.dtype, None, keys=self.keys)

    def __str__(self) -> str:
        return f"seq({self.items})"


@dataclass(frozen=True, slots=True)
class OptionalType(TensorType):
    """A value that may be absent, in Python None; one that is present is a tensor or a sequence like any other."""

    def __str__(self) -> str:
        return f"optional({TensorType(self.dtype, None)})"


CONTAINERS = (SequenceType, OptionalType, MapType)
"""The types of values that are not always arrays."""


def one_of(one: TensorType | None, other: TensorType | None) -> TensorType | None:
    """The type of a value that is of one type or the other, with open sizes where these differ; None for different kinds."""
    if one is None or other is None or type(one) is not type(other) or one.dtype is not other.dtype:
        return None
    if isinstance(one, CONTAINERS):
        return one if one == other else None
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return TensorType(one.dtype, None)
    return TensorType(one.dtype, tuple([a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)]))


def array_bytes(array: NDArray[Any]) -> int:
    """Bytes of an array's elements, those of its strings included, each distinct string object once."""
    if array.dtype.kind != "O":
        return array.nbytes
    # Not in a dictionary: while a large one grows, or is freed, no other thread runs.
    _, distinct = np.unique(np.fromiter(map(id, array.flat), np.int64, array.size), return_index=True)
    texts = array.reshape(-1)[distinct]
    return array.nbytes + sum(len(text) for text in texts if isinstance(text, str))


def as_constant(array: Any) -> NDArray[Any]:
    """`array` as a read-only array that shares memory where it can."""
    return read_only(np.asarray(array))


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written through."""
    view = array.view()
    view.flags.writeable = False
    return view


def same_bytes(one: TensorType, other: TensorType) -> bool:
    """Whether the bytes of a value are the same in the layouts of two types, which are permutations or blocked.

    They are for images of one channel, and for channels of one pixel, such as those after a global pooling.
    """
    are_whole = all(not tensor.layout.block or tensor.dims[1] % tensor.layout.block == 0 for tensor in (one, other))
    return are_whole and _axes(one) == _axes(other)


def _axes(tensor: TensorType) -> list[tuple[int, int]]:
    """The dimensions or parts of them of more than one element, with their sizes, from outermost to innermost in memory."""
    order = (*range(tensor.rank), 1) if tensor.layout.block else tensor.order
    found = [(axis, size) for axis, size in zip(order, tensor.memory_dims, strict=True) if size != 1]
    return [(axis, math.prod(size for _, size in parts)) for axis, parts in groupby(found, itemgetter(0))]
