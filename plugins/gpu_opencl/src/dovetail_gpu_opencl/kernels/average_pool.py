"""AveragePool."""

import math
from collections.abc import Sequence

from dovetail.device import PLAIN, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._channels import innermost, layouts, windows_launch
from dovetail_gpu_opencl.kernels._pool import MOST_SUMMED, PoolDirect, PoolRows, geometry, padded_ends
from dovetail_gpu_opencl.kernels._spatial import spatial_defines
from dovetail_gpu_opencl.launch import Launch, Read
from dovetail_ops_onnx.average_pool import AveragePool

__all__ = ["KERNELS"]


def _large(node: TypedNode) -> Refusal | None:
    taps = math.prod(geometry(node).kernel)
    return None if taps <= MOST_SUMMED else Refusal(Reason.SHAPE, f"windows of {taps} elements; accepted: up to {MOST_SUMMED}")


class AveragePoolRows(PoolRows):
    """For CPUs, small windows: pool_rows.cl."""

    name = "average_pool_rows"

    def check(self, node: TypedNode) -> Refusal | None:
        large = _large(node)
        return super().check(node) if large is None else large

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        return {"COUNT_PADS": bool(node.op.count_include_pad)}


class AveragePoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "average_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        return {"COUNT_PADS": True, **padded_ends(geometry(node))} if node.op.count_include_pad else {}


class AveragePoolInnermost(AveragePoolDirect):
    """For GPUs with matrix units: windows_channels.cl where the channels are innermost, else as the direct kernel."""

    name = "average_pool_innermost"

    def check(self, node: TypedNode) -> Refusal | None:
        for ask in (lambda n: innermost(self, n), super().check):
            if (refusal := ask(node)) is not None:
                return refusal
        return _large(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return layouts(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if node.outputs[0].layout == PLAIN:
            return super().launches(node)
        batch, channels = node.given(0).dims[:2]
        numbers = {"C": channels, "BATCH": batch, **spatial_defines(geometry(node))}
        mode = self.mode(node)
        mode.pop("COUNT_D", None)
        return windows_launch(self, node, numbers, {"MEAN": True, **mode}, (Read(node.node.inputs[0]),))


KERNELS = (AveragePoolInnermost(), AveragePoolRows(), AveragePoolDirect())
