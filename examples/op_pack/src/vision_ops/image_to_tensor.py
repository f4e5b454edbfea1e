"""ImageToTensor: the preprocessing of most vision networks, composed of standard operators."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, Operator, OperatorError, ShapeError, TensorType
from dovetail.testing import Case
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose


class ImageToTensor(Operator):
    """tensor[n, c, h, w] = (image[n, h, w, c] - mean[c]) / std[c]; `mean` and `std` in pixel values, 0 to 255.

    It has no reference: the composition defines it. A device that has a kernel for the whole operator uses that instead.
    """

    domain = "com.example.vision"
    inputs = ("image: uint8",)
    outputs = ("tensor: float32",)

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std):
            raise OperatorError(f"mean has {len(self.mean)} numbers and std {len(self.std)}; accepted: one for each channel")
        if 0 in self.std:
            raise OperatorError(f"std is {list(self.std)}; accepted: numbers other than 0")

    def infer(self, image: TensorType) -> TensorType:
        """float32[N, C, H, W]. Raises `ShapeError` unless the image has four dimensions and a channel for each number."""
        if image.rank != 4 or image.dims[3] != len(self.mean):
            raise ShapeError(f"image is {image}; accepted: [N, H, W, {len(self.mean)}], as mean has {len(self.mean)} numbers")
        n, h, w, c = image.dims
        return TensorType(DType.FLOAT32, (n, c, h, w))

    def compose(self, g: GraphBuilder, image: str) -> Any:
        """Transpose, Cast, Sub, Div."""
        planes = g.node(Transpose(perm=(0, 3, 1, 2)), image)
        pixels = g.node(Cast(to=DType.FLOAT32), planes)
        centred = g.node(Sub(), pixels, g.constant(_column(self.mean), name="mean"))
        return g.node(Div(), centred, g.constant(_column(self.std), name="std"))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> Iterator[Case]:
        """The formula in float64, with the usual numbers of ImageNet and with a single channel."""
        imagenet = cls(mean=(123.675, 116.28, 103.53), std=(58.395, 57.12, 57.375))
        for op, shape in ((imagenet, (2, 5, 7, 3)), (imagenet, (0, 4, 4, 3)), (cls(mean=(0.0,), std=(255.0,)), (1, 3, 2, 1))):
            image = rng.integers(0, 256, shape, dtype=np.uint8)
            tensor = ((image.astype(np.float64) - op.mean) / op.std).transpose(0, 3, 1, 2)
            yield Case("x".join(map(str, shape)), op, (image,), (tensor.astype(np.float32),))


def _column(numbers: tuple[float, ...]) -> NDArray[np.float32]:
    """One number for each channel, in a shape that broadcasts over H and W."""
    return np.array(numbers, np.float32).reshape(-1, 1, 1)
