"""QuantizeLinear and DequantizeLinear of 16 bits, which oneDNN lacks, by NumPy in blocks that stay in a cache."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from dovetail.device import BYXF, PLAIN, Accepted, DType, LayerConfig, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

__all__ = ["WideDequantize", "WideQuantize"]

_WIDE = frozenset({DType.INT16, DType.UINT16})
_BLOCK = 1 << 14
"""Elements at a time."""


class _WideScaling(PythonKernel):
    """Between float32 and 16 bits, by one constant scale and zero point."""

    name = "blocks"
    stored: ClassVar[int]
    """0 where the input has 16 bits, 1 where the output has."""

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        op, types = node.op, (node.given(0).dtype, node.outputs[0].dtype)
        assert isinstance(op, DequantizeLinear | QuantizeLinear)
        if types[self.stored] not in _WIDE or types[1 - self.stored] is not DType.FLOAT32:
            return Refusal(Reason.DTYPE, "accepted: float32 and 16 bits")
        if any(t is not None and (t.value is None or t.size != 1) for t in node.inputs[1:]) or node.post_ops:
            return Refusal(Reason.DYNAMIC, "several scales, scales that are not constant, or post-ops")
        if node.given(1).dtype is not DType.FLOAT32 or getattr(op, "precision", 0) not in (0, DType.FLOAT32.onnx):
            return Refusal(Reason.ATTRIBUTE, "another precision than float32")
        return Accepted(self.name)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        rest, rank = (PLAIN,) * (len(node.inputs) - 1), node.outputs[0].rank
        return [LayerConfig((layout, *rest), (layout,)) for layout in (PLAIN, BYXF) if layout.fits(rank)]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        scale, *zeros = (t.value for t in node.inputs[1:] if t is not None)
        assert scale is not None
        zero = np.float32(zeros[0].reshape(())) if zeros and zeros[0] is not None else np.float32(0)
        src, dst = (array(name).reshape(-1) for name in (node.node.inputs[0], node.node.outputs[0]))
        buffer = np.empty(min(_BLOCK, src.size), np.float32)
        parts = [slice(start, start + _BLOCK) for start in range(0, src.size, _BLOCK)]
        return [
            quiet(partial(self.scale, src[part], dst[part], scale.reshape(()), zero, buffer[: src[part].size])) for part in parts
        ]

    @abstractmethod
    def scale(self, src: Array, dst: Array, scale: Any, zero: Any, buffer: Array) -> None:
        """One block from `src` to `dst`."""


class WideQuantize(_WideScaling):
    """Halves to even, saturated; NaN becomes 0, as in the reference."""

    stored = 1

    def scale(self, src: Array, dst: Array, scale: Any, zero: Any, buffer: Array) -> None:
        limits = np.iinfo(dst.dtype)
        with np.errstate(all="ignore"):
            np.divide(src, scale, out=buffer)
            np.rint(buffer, out=buffer)
            np.add(buffer, zero, out=buffer)
            np.maximum(buffer, np.float32(limits.min), out=buffer)  # np.clip takes 5 us more
            np.minimum(buffer, np.float32(limits.max), out=buffer)
            if math.isnan(np.minimum.reduce(buffer)):
                np.nan_to_num(buffer, copy=False)
            np.copyto(dst, buffer, casting="unsafe")


class WideDequantize(_WideScaling):
    """float32 holds all differences."""

    stored = 0

    def scale(self, src: Array, dst: Array, scale: Any, zero: Any, buffer: Array) -> None:
        np.subtract(src, zero, out=dst)
        np.multiply(dst, scale, out=dst)
