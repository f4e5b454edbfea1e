"""Resampling where oneDNN's coordinates are those that the operator asks for."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Alg, Arg
from dovetail_cpu_onednn.descriptors import describe
from dovetail_cpu_onednn.kernel import AnyLayoutKernel, Argument, NodePlan, Refused
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import attach, is_one_element_a_channel
from dovetail_ops_onnx.resize import Resize, Resize_10
from dovetail_ops_onnx.upsample import Upsample

__all__ = ["ResamplingKernel"]

_ALGORITHMS = {"nearest": Alg.RESAMPLING_NEAREST, "linear": Alg.RESAMPLING_LINEAR}


class ResamplingKernel(AnyLayoutKernel):
    """By the nearest or the two next elements along spatial axes, at the places that half_pixel has for the sizes' quotient."""

    name = "resampling"
    dtypes = frozenset({DType.FLOAT32, DType.INT8, DType.UINT8})

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        x, y, op = node.given(0), node.outputs[0], node.op
        assert isinstance(op, Resize | Resize_10 | Upsample)
        sampling = op.sampling
        if sampling.coordinate == "tf_crop_and_resize":
            raise Refused(Reason.ATTRIBUTE, "tf_crop_and_resize")
        if sampling.mode not in _ALGORITHMS or sampling.antialias or sampling.exclude_outside:
            raise Refused(Reason.ATTRIBUTE, f"{sampling}; accepted: nearest and linear without antialias or exclude_outside")
        if sampling.mode != "nearest" and x.dtype is not DType.FLOAT32:
            raise Refused(Reason.DTYPE, f"{x.dtype}, between whose numbers oneDNN rounds otherwise")
        axes = op.plan(x, *_parameters(node))
        if not 3 <= x.rank <= 5 or any(axis.axis < 2 for axis in axes):
            raise Refused(Reason.SHAPE, f"{x} to {y}; accepted: one to three spatial axes, resampled alone")
        for axis in axes:
            if abs(axis.scale * axis.size - axis.out) > 1e-6 * axis.out:
                raise Refused(Reason.ATTRIBUTE, f"scale {axis.scale} for {axis.size} elements; accepted: quotients of sizes")
            if not _agree(axis, sampling):
                raise Refused(Reason.ATTRIBUTE, f"{sampling} along axis {axis.axis}; accepted: the coordinates of half_pixel")
        src, dst = describe(x), describe(y)
        chain = attach(node, False, False)
        algorithm = _ALGORITHMS[sampling.mode]
        pd = library().describe("resampling_forward", INFERENCE, algorithm, None, src, dst, attr=chain.attr)
        if node.post_ops and "simple" in pd.implementation:
            # Ten times as slow, and wrong with channels last: it reads operands of the chain as if they were plain.
            raise Refused(Reason.POST_OP, "oneDNN has only its simple implementation for it")
        if is_one_element_a_channel(y.dims) and any(t.size > 1 for t in node.operands):
            raise Refused(Reason.POST_OP, f"oneDNN's resampling reads operands of {y} wrongly; accepted: one number")
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)


def _parameters(node: TypedNode) -> list[Any]:
    given: list[TensorType | None] = list(node.inputs[1:])
    if any(t is not None and t.size and t.value is None for t in given):
        raise Refused(Reason.DYNAMIC, "scales or sizes that are not constant")
    wanted = len(node.op.inputs) - 1
    return [*given, *[None] * wanted][:wanted]


@lru_cache(256)
def _agree(axis: Any, sampling: Any) -> bool:
    elements, weights = sampling.taps(axis)
    # From where on its axis each element of the result comes.
    places = elements[:, 0] if weights is None else (elements * weights).sum(axis=1)
    return bool((np.abs(places - _places_of_onednn(axis, sampling.mode)) <= 1e-6 + 1e-6 * places).all())


def _places_of_onednn(axis: Any, mode: str) -> NDArray[np.float64]:
    """The places from which oneDNN takes the elements of the result: half_pixel in float32, halves away from zero."""
    x = (np.arange(axis.out, dtype=np.float32) + np.float32(0.5)) * np.float32(axis.size) / np.float32(axis.out) - np.float32(0.5)
    if mode == "nearest":
        x = np.trunc(x + np.copysign(np.float32(0.5), x))
    places: NDArray[np.float64] = np.clip(x, 0, axis.size - 1).astype(np.float64)
    return places
