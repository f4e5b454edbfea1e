"""MaxpoolGrad of TIM-VX: the gradient of max pooling, composed of MaxPool's indices and a scatter."""

from typing import Any

from dovetail.op import FLOATS, GraphBuilder, ShapeError, TensorType
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_tim_vx._base import TimVxOperator
from dovetail_ops_tim_vx._sequence import zeros


class MaxpoolGrad(TimVxOperator):
    """dX = zeros like X, and for each window of the max pooling of X the element of dY added at the window's maximum.

    X [batch, channels, spatial ...], dY of the shape that MaxPool gives, dX like X. Where windows overlap, updates of the same
    place add up; of equal elements the first in the window counts, and NaN is greater than every number, as in ONNX's MaxPool.

    The attributes are those of ONNX's MaxPool. TIM-VX calls them ksize and stride, width first, padding (VALID, SAME) and
    round_type (ceil_mode); it leaves open which of equal elements counts. Row-major shapes; TIM-VX counts dimensions the other
    way round.
    """

    inputs = ("X: T", "dY: T")
    outputs = ("dX: T",)
    types = {"T": FLOATS}

    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    auto_pad: str = "VALID"
    ceil_mode: bool = False

    def infer(self, X: TensorType, dY: TensorType) -> TensorType:
        """The type of X. Raises `ShapeError` when dY differs in shape from the pooled X."""
        pooled, _ = self._pool().infer(X)
        if dY.dims != pooled.dims:
            raise ShapeError(f"input 'dY' is {dY}; accepted for X {X}: shape {list(pooled.dims)}")
        return X.with_shape(X.dims)

    def compose(self, g: GraphBuilder, x: str, dy: str) -> Any:
        """MaxPool for the places, ScatterElements for the sums, and changes of shape."""
        given = g.given(x)
        _, places = g.node(self._pool(), x, name="pool", outputs=2)
        flat = g.constant([-1], "int64", "flat")
        updates = g.node(Reshape(), dy, flat, name="updates")
        sums = g.node(
            ScatterElements(reduction="add"),
            zeros(g, (given.size,), given.dtype),
            g.node(Reshape(), places, flat, name="places"),
            updates,
            name="scatter",
        )
        return g.node(Reshape(allowzero=True), sums, g.constant(given.dims, "int64", "shape"), name="gradient")

    def _pool(self) -> MaxPool:
        return MaxPool(kernel_shape=self.kernel_shape, strides=self.strides, auto_pad=self.auto_pad, ceil_mode=self.ceil_mode)
