"""Operators that ONNX Runtime had before the standard, and that old exports of PyTorch and Keras hold."""

from typing import Any

from dovetail.errors import DataDependentShape
from dovetail.op import FLOATS, DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv_transpose import ConvTranspose
from dovetail_ops_onnx.gather_nd import GatherND as StandardGatherND
from dovetail_ops_onnx.grid_sample import GridSample as StandardGridSample
from dovetail_ops_onnx.pad import Pad as StandardPad
from dovetail_ops_onnx.range import Range as StandardRange
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.trilu import Trilu as StandardTrilu
from dovetail_ops_onnx.unique import Unique as StandardUnique
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node, reshape

__all__ = ["ConvTransposeWithDynamicPads", "ExpandDims", "GatherND", "GridSample", "Pad", "Range", "Trilu", "Unique"]


class Trilu(MicrosoftOperator):
    """Trilu of the standard."""

    inputs = ("X: T", "k?: int64")
    outputs = ("Y: T",)
    types = {"T": StandardTrilu.types["T"]}
    upper: bool = True

    def infer(self, X: TensorType, k: TensorType | None = None) -> TensorType:
        """The type of X."""
        return StandardTrilu().infer(X, k)

    def compose(self, g: GraphBuilder, x: str, k: str = "") -> str:
        """The standard's."""
        return node(g, StandardTrilu(upper=self.upper), x, *([k] if k else []))


class ExpandDims(MicrosoftOperator):
    """Unsqueeze of the standard with a single axis."""

    inputs = ("X: T", "axis: int32")
    outputs = ("Y: T",)
    types = {"T": Reshape.types["T"]}

    def infer(self, X: TensorType, axis: TensorType) -> TensorType:
        """X with an axis of size 1, whose place must be known."""
        if axis.value is None:
            raise DataDependentShape("the rank of the output depends on input 'axis', which is not known while planning")
        place = axis.value.item()
        if not -X.rank - 1 <= place <= X.rank:
            raise ShapeError(f"input 'X' is {X}, 'axis' {place}; accepted: {-X.rank - 1} to {X.rank}")
        dims = list(X.dims)
        dims.insert(place % (X.rank + 1), 1)
        return X.with_shape(tuple(dims))

    def compose(self, g: GraphBuilder, x: str, axis: str) -> str:
        """A view."""
        return reshape(g, x, self.infer(g.given(x), g.given(axis)).dims)


class Range(MicrosoftOperator):
    """Range of the standard; inputs may be vectors of one element, and the step is 1 if it is left out."""

    inputs = ("start: T", "limit: T", "delta?: T")
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT32, DType.FLOAT64, DType.INT16, DType.INT32, DType.INT64})}

    def infer(self, start: TensorType, *rest: TensorType | None) -> TensorType:
        """A vector; all inputs must be known."""
        scalars = [_scalar(t) for t in (start, *rest) if t is not None]
        if len(scalars) < 3:
            g = GraphBuilder()
            scalars.append(g.given(g.constant(1, start.dtype)))
        return StandardRange().infer(*scalars)

    def compose(self, g: GraphBuilder, start: str, limit: str, delta: str = "") -> str:
        """The standard's."""
        ends = (reshape(g, name, ()) for name in (start, limit))
        step = reshape(g, delta, ()) if delta else g.constant(1, g.given(start).dtype)
        return node(g, StandardRange(), *ends, step)


class Pad(MicrosoftOperator):
    """Pad of the standard; `pads` may be a matrix of one row, `value` a vector of one element."""

    inputs = ("data: T", "pads: int64", "value?: T")
    outputs = ("output: T",)
    types = {"T": FLOATS}
    mode: str = "constant"

    def infer(self, data: TensorType, pads: TensorType, value: TensorType | None = None) -> TensorType:
        """The padded shape; the pads must be known."""
        if pads.size != 2 * data.rank:
            raise ShapeError(f"input 'data' is {data}, 'pads' {pads}; accepted: {2 * data.rank} numbers")
        known = None if pads.value is None else pads.value.reshape(-1)
        row = TensorType(pads.dtype, (pads.size,), known)
        return StandardPad(mode=self.mode).infer(data, row, None if value is None else _scalar(value))

    def compose(self, g: GraphBuilder, data: str, pads: str, value: str = "") -> str:
        """The standard's."""
        row = reshape(g, pads, (g.given(pads).size,))
        return node(g, StandardPad(mode=self.mode), data, row, *([reshape(g, value, ())] if value else []))


class Unique(MicrosoftOperator):
    """Unique of the standard for a vector, in the order of the first occurrence."""

    inputs = ("x: T",)
    outputs = ("y: T", "idx: int64", "counts: int64")
    types = {"T": StandardUnique.types["T"]}

    def infer(self, x: TensorType) -> tuple[TensorType, ...]:
        """The distinct elements, where each element of x is among them, and how often each occurs."""
        if x.rank != 1:
            raise ShapeError(f"input 'x' is {x}; accepted: a vector")
        y, _, inverse, counts = StandardUnique().infer(x)
        return y, inverse, counts

    def compose(self, g: GraphBuilder, x: str) -> Any:
        """The standard's."""
        y, _, inverse, counts = g.node(StandardUnique(sorted=False), x, outputs=4)
        return y, inverse, counts


class GatherND(MicrosoftOperator):
    """GatherND of the standard."""

    inputs = ("data: T", "indices: Tind")
    outputs = ("output: T",)
    types = {"T": StandardGatherND.types["T"], "Tind": frozenset({DType.INT32, DType.INT64})}

    def infer(self, data: TensorType, indices: TensorType) -> TensorType:
        """As the standard's."""
        return StandardGatherND().infer(data, indices.with_dtype(DType.INT64))

    def compose(self, g: GraphBuilder, data: str, indices: str) -> str:
        """The standard's."""
        from_int32 = g.given(indices).dtype is DType.INT32
        return node(g, StandardGatherND(), data, node(g, Cast(to=DType.INT64), indices) if from_int32 else indices)


class GridSample(MicrosoftOperator):
    """GridSample of the standard for images, with the modes bilinear, nearest and bicubic."""

    inputs = ("X: T", "Grid: T")
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT32})}
    align_corners: bool = False
    mode: str = "bilinear"
    padding_mode: str = "zeros"

    def __post_init__(self) -> None:
        if self.mode not in ("bilinear", "nearest", "bicubic"):
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: bilinear, nearest, bicubic")
        self._standard()

    def infer(self, X: TensorType, grid: TensorType) -> TensorType:
        """[N, C, height, width]."""
        return self._standard().infer(X, grid)

    def compose(self, g: GraphBuilder, x: str, grid: str) -> str:
        """The standard's."""
        return node(g, self._standard(), x, grid)

    def _standard(self) -> StandardGridSample:
        mode = self.mode.removeprefix("bi")
        return StandardGridSample(align_corners=self.align_corners, mode=mode, padding_mode=self.padding_mode)


class ConvTransposeWithDynamicPads(MicrosoftOperator):
    """ConvTranspose of the standard with its pads as an input, which must be known while planning."""

    inputs = ("X: T", "W: T", "Pads?: int64", "B?: T")
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT32})}
    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    output_padding: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, X: TensorType, W: TensorType, Pads: TensorType | None = None, B: TensorType | None = None) -> TensorType:
        """As ConvTranspose. Raises `DataDependentShape` for pads that are not known."""
        return self._conv(Pads).infer(X, W, B)

    def compose(self, g: GraphBuilder, x: str, w: str, pads: str = "", b: str = "") -> str:
        """ConvTranspose."""
        return node(g, self._conv(g.type_of(pads)), x, w, *([b] if b else []))

    def _conv(self, pads: TensorType | None) -> ConvTranspose:
        if pads is not None and pads.value is None:
            raise DataDependentShape("the output shape depends on input 'Pads', which is not known while planning")
        known = None if pads is None or pads.value is None else tuple(pads.value.reshape(-1).tolist())
        return ConvTranspose.like(self, pads=known)


def _scalar(t: TensorType) -> TensorType:
    """A vector of one element as a scalar."""
    if t.size != 1 or t.rank > 1:
        raise ShapeError(f"an input is {t}; accepted: one number")
    return TensorType(t.dtype, (), None if t.value is None else t.value.reshape(()))
