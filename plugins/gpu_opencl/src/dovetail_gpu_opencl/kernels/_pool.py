"""What the pooling operators share."""

from abc import abstractmethod

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import postops
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._spatial import MAX_SPATIAL, spatial_defines
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.lp_pool import LpPool
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import ConvGeometry

__all__ = ["PoolDirect", "geometry"]


class PoolDirect(CLKernel):
    """One element a work item: pool.cl."""

    half_by_load = True
    bfloat16_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        rank = geometry(node).rank
        return None if rank <= MAX_SPATIAL else Refusal(Reason.SHAPE, f"{rank} spatial axes")

    @abstractmethod
    def mode(self, node: TypedNode) -> dict[str, object]:
        """Defines that say what is computed of a window."""

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dtype, dims = node.outputs[0].dtype, node.outputs[0].dims
        acc = accumulator(dtype) if dtype.is_float else "int"
        defines = {**storage(dtype), "ACC": acc, "PLANES": dims[0] * dims[1], **spatial_defines(geometry(node))}
        chain = postops.epilogue(node)
        source = assemble("pool.cl", {**defines, **self.mode(node)}, chain.source)
        work, local = spread(node.outputs[0].size, self.caps)
        written = [Write(name) for name in node.node.outputs if name]
        arguments = (Read(node.node.inputs[0]), *written, *chain.arguments)
        return (Launch("pool.cl", source, "pool", arguments, work, local),)


def geometry(node: TypedNode) -> ConvGeometry:
    """The node's windows."""
    assert isinstance(node.op, AveragePool | LpPool | MaxPool)
    return node.op.geometry(node.given(0))
