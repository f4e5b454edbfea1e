"""DFT: https://onnx.ai/onnx/operators/onnx__DFT.html."""

from dovetail.op import FLOATS, Operator, TensorType
from dovetail_ops_onnx._elementwise import scalar
from dovetail_ops_onnx._fourier import check_signal, default_length, transformed, transformed_dims
from dovetail_ops_onnx._shapes import check_axis, known_ints
from dovetail_ops_onnx._types import INDICES, Array, Types


class DFT(Operator):
    """The discrete Fourier transform along an axis, or its inverse; the last axis has real and imaginary part, or real only."""

    since = 20
    inputs = ("input: T1", "dft_length?: T2", "axis?: int64")
    outputs = ("output: T1",)
    types = {"T1": FLOATS, "T2": INDICES}

    inverse: bool = False
    onesided: bool = False

    def infer(self, x: TensorType, length: TensorType | None = None, axis: TensorType | None = None) -> TensorType:
        """As the input, with the transform's length along the axis and two parts in the last."""
        if axis is not None:
            scalar(axis, "axis")
        return _inferred(x, length, _axis(axis), self.inverse, self.onesided)

    def line(self, inputs: Types) -> tuple[int, int]:
        """The axis of the transform of a typed node, and its length."""
        x, length, axis = (*inputs, None, None)[:3]
        return _line(x, length, _axis(axis), self.inverse, self.onesided)

    def reference(self, x: Array, length: Array | None = None, axis: Array | None = None) -> Array:
        """By fast Fourier transforms."""
        along = -2 if axis is None else int(axis.reshape(()))
        return _computed(x, length, along, self.inverse, self.onesided)


class DFT_17(Operator):
    """The same with the axis as an attribute."""

    since = 17
    inputs = ("input: T1", "dft_length?: T2")
    outputs = ("output: T1",)
    types = {"T1": FLOATS, "T2": INDICES}

    axis: int = 1
    inverse: bool = False
    onesided: bool = False

    def infer(self, x: TensorType, length: TensorType | None = None) -> TensorType:
        """As the newer version."""
        return _inferred(x, length, self.axis, self.inverse, self.onesided)

    def line(self, inputs: Types) -> tuple[int, int]:
        """As of the newer version."""
        x, length = (*inputs, None)[:2]
        return _line(x, length, self.axis, self.inverse, self.onesided)

    def reference(self, x: Array, length: Array | None = None) -> Array:
        """By fast Fourier transforms."""
        return _computed(x, length, self.axis, self.inverse, self.onesided)


def _axis(given: TensorType | None) -> int:
    return -2 if given is None else known_ints(given, "axis")[0]


def _line(x: TensorType | None, length: TensorType | None, axis: int, inverse: bool, onesided: bool) -> tuple[int, int]:
    assert x is not None
    along = check_axis(check_axis(axis, x.rank), x.rank - 1)
    return along, default_length(x.dims[along], inverse, onesided) if length is None else known_ints(length, "dft_length")[0]


def _inferred(x: TensorType, length: TensorType | None, axis: int, inverse: bool, onesided: bool) -> TensorType:
    check_signal(x)
    if length is not None:
        scalar(length, "dft_length")
    along, count = _line(x, length, axis, inverse, onesided)
    return x.with_shape(transformed_dims(x.dims, along, count, inverse, onesided))


def _computed(x: Array, length: Array | None, axis: int, inverse: bool, onesided: bool) -> Array:
    along = check_axis(check_axis(axis, x.ndim), x.ndim - 1)
    count = default_length(x.shape[along], inverse, onesided) if length is None else int(length.reshape(()))
    return transformed(x, along, count, inverse, onesided)
