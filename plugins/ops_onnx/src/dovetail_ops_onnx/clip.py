"""Clip: https://onnx.ai/onnx/operators/onnx__Clip.html."""

from collections.abc import Sequence

import numpy as np

from dovetail.op import DType, Operator, TensorType
from dovetail_ops_onnx._elementwise import computed, eltwise, finite_range, scalar
from dovetail_ops_onnx._types import FLOATS, NUMERIC, Array, Chain, Types


class Clip(Operator):
    """Each element limited to min and max, which are the finite range of the type when left out; max wins over min."""

    since = 11
    inputs = ("input: T", "min?: T", "max?: T")
    outputs = ("output: T",)
    magnitude = "sum"
    types = {"T": NUMERIC}
    in_place = True

    def infer(self, x: TensorType, low: TensorType | None = None, high: TensorType | None = None) -> TensorType:
        """The input's type; the limits must be scalars."""
        for limit, name in ((low, "min"), (high, "max")):
            if limit is not None:
                scalar(limit, name)
        return x.with_shape(x.shape)

    def reference(self, x: Array, low: Array | None = None, high: Array | None = None) -> Array:
        """min(max, max(min, x)); NaN stays NaN."""
        lowest, highest = finite_range(x.dtype)
        return _clipped(x, lowest if low is None else low.reshape(()), highest if high is None else high.reshape(()))

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise clip, when the limits are constants."""
        limits = [t for t in types[1:] if t is not None]
        if chained != 0 or types[0] is None or types[0].dtype not in FLOATS or any(t.value is None for t in limits):
            return None
        low, high = (_limit(types, index) for index in (1, 2))
        lowest, highest = finite_range(types[0].dtype.numpy)
        return eltwise(types, "clip", lowest if low is None else low, highest if high is None else high)


class Clip_6(Operator):
    """Each element limited to the attributes min and max; max wins over min."""

    since = 6
    inputs = ("input: T",)
    outputs = ("output: T",)
    magnitude = "sum"
    types = {"T": FLOATS}
    in_place = True

    min: float = -3.4028234663852886e38
    max: float = 3.4028234663852886e38

    def reference(self, x: Array) -> Array:
        """min(max, max(min, x)); NaN stays NaN."""
        low, high = self._limits(DType.of(x.dtype))
        return _clipped(x, low, high)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> Chain:
        """Eltwise clip."""
        return None if types[0] is None else eltwise(types, "clip", *self._limits(types[0].dtype))

    def _limits(self, dtype: DType) -> tuple[float, float]:
        lowest, highest = finite_range(dtype.numpy)
        return max(self.min, lowest), min(self.max, highest)


def _limit(types: Types, index: int) -> float | None:
    given = types[index] if index < len(types) else None
    return None if given is None or given.value is None else float(given.value.reshape(()))


def _clipped(x: Array, low: Array | float, high: Array | float) -> Array:
    return computed(lambda v: np.minimum(np.maximum(v, np.asarray(low, v.dtype)), np.asarray(high, v.dtype)), x)
