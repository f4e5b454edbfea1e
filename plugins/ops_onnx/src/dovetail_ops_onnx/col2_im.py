"""Col2Im: https://onnx.ai/onnx/operators/onnx__Col2Im.html."""

import math

import numpy as np

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_dims, ints, known_ints
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx.spatial import ConvGeometry, conv_geometry


class Col2Im(Operator):
    """Columns [N, C * block, positions] added up to images [N, C, *image_shape], with overlaps summed."""

    since = 18
    inputs = ("input: T", "image_shape: int64", "block_shape: int64")
    outputs = ("output: T",)
    types = {"T": BASIC}

    dilations: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, x: TensorType, image: TensorType, block: TensorType) -> TensorType:
        """[N, C, *image_shape]. Raises `ShapeError` unless the number of columns is that of the blocks in the image."""
        if x.dtype is DType.STRING:
            raise OperatorError("the input is a tensor of strings, which have no sum; accepted: numbers and bool")
        sizes, kernel = known_ints(image, "image_shape"), known_ints(block, "block_shape")
        self._geometry(x.dims, sizes, kernel)
        return x.with_shape((x.dims[0], x.dims[1] // math.prod(kernel), *sizes))

    def reference(self, x: Array, image: Array, block: Array) -> Array:
        """Block element by block element."""
        g = self._geometry(x.shape, ints(image, "image_shape"), ints(block, "block_shape"))
        columns = wide(x).reshape(x.shape[0], x.shape[1] // g.kernel_size, *g.kernel, *g.output)
        padded = [n + b + e for n, b, e in zip(g.input, g.pads_begin, g.overhang, strict=True)]
        total = np.zeros((*columns.shape[:2], *padded), columns.dtype)
        with np.errstate(all="ignore"):
            for k in np.ndindex(*g.kernel):
                at = [i * d for i, d in zip(k, g.dilations, strict=True)]
                places = [slice(a, a + s * o, s) for a, s, o in zip(at, g.strides, g.output, strict=True)]
                total[(slice(None), slice(None), *places)] += columns[(slice(None), slice(None), *k)]
        inner = [slice(b, b + n) for b, n in zip(g.pads_begin, g.input, strict=True)]
        return rounded(total[(slice(None), slice(None), *inner)], x.dtype)

    def _geometry(self, dims: tuple[int, ...], image: tuple[int, ...], block: tuple[int, ...]) -> ConvGeometry:
        if len(dims) != 3 or len(image) != len(block):
            raise ShapeError(
                f"the input has shape {list(dims)}, 'image_shape' {image}, 'block_shape' {block}; accepted: [N, C, L]"
            )
        check_dims(image, "image_shape")
        g = conv_geometry(image, block, strides=self.strides, dilations=self.dilations, pads=self.pads)
        if dims[1] % math.prod(block) or dims[2] != math.prod(g.output):
            raise ShapeError(
                f"the input has shape {list(dims)}; accepted: [N, a multiple of {math.prod(block)}, {math.prod(g.output)}]"
            )
        return g
