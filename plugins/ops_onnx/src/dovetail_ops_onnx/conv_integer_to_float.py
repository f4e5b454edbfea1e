"""ConvInteger with its sums converted to float32. Only a graph pass makes this operator; it is not part of the standard."""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, DType, GraphBuilder, Port, TensorType
from dovetail_ops_onnx._quantize import per_channel
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["ConvIntegerToFloat"]


@dataclass(frozen=True)
class ConvIntegerToFloat(AbstractOperator):
    """ConvInteger with its int32 sums converted to float32, each rounded once, times x_scale * w_scale if they are given.

    x_scale is one number, w_scale one or as many as there are channels of the result, in any shape. Their product is rounded to
    float32 first, as the nodes that exporters write do. The attributes are those of ConvInteger.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "ConvIntegerToFloat"
    stem: ClassVar[str] = "conv_integer_to_float"
    magnitude = "sum_of_integers"
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(ConvInteger.attributes))
    inputs: ClassVar[tuple[Port, ...]] = (
        Port("x"),
        Port("w"),
        Port("x_zero_point", optional=True),
        Port("w_zero_point", optional=True),
        Port("x_scale", optional=True),
        Port("w_scale", optional=True),
    )
    outputs: ClassVar[tuple[Port, ...]] = (Port("y"),)

    auto_pad: str = "NOTSET"
    dilations: tuple[int, ...] | None = None
    group: int = 1
    kernel_shape: tuple[int, ...] | None = None
    pads: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None

    def infer(self, x: TensorType, w: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of ConvInteger in float32."""
        return self.sums().infer(x, w, *rest[:2]).with_dtype(DType.FLOAT32)

    def compose(self, g: GraphBuilder, *inputs: str) -> str:
        """ConvInteger and Cast, and two Mul with scales."""
        converted: str = g.node(Cast(to=DType.FLOAT32), g.node(self.sums(), *inputs[:4]))
        if not any(inputs[4:]):
            return converted
        weights = g.type_of(inputs[1])
        assert weights is not None
        own: str = g.node(Reshape(), inputs[5], g.constant(np.array([-1, *[1] * (weights.rank - 2)])))
        scaled: str = g.node(Mul(), converted, g.node(Mul(), inputs[4], own))
        return scaled

    def reference(self, x: NDArray[Any], w: NDArray[Any], *rest: NDArray[Any] | None) -> NDArray[Any]:
        """The sums as float32, times the scales."""
        sums: NDArray[Any] = self.sums().reference(x, w, *rest[:2]).astype(np.float32)
        x_scale, w_scale = (*rest, None, None, None, None)[2:4]
        return sums if x_scale is None or w_scale is None else sums * (x_scale.reshape(()) * per_channel(w_scale, w.ndim - 1))

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Those of ConvInteger."""
        return self.sums().flops(inputs, outputs)

    def sums(self) -> ConvInteger:
        """The convolution whose sums are converted."""
        return _sums(self)

    def conv(self) -> Conv:
        """The convolution over real numbers with these attributes."""
        return self.sums().conv()


@lru_cache(256)
def _sums(op: ConvIntegerToFloat) -> ConvInteger:
    return ConvInteger(**{name: getattr(op, name) for name in ConvInteger.attributes})
