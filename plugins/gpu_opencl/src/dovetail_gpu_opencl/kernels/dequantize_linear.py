"""DequantizeLinear from integers of 2 to 32 bits and floats of 4 and 8."""

from collections.abc import Sequence

from dovetail.device import DType, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._quantize import REAL, STORED, Runs, layouts_of
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Write
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["KERNELS"]

_STORED = STORED | {DType.INT32}


class Dequantize(CLKernel):
    """dequantize_linear.cl: an element a work item, in float."""

    name = "dequantize_linear"
    by_content = False
    halves_by_load = True
    dtypes = REAL | _STORED

    def check(self, node: TypedNode) -> Refusal | None:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        fits = x.dtype in _STORED and scale.dtype in REAL and node.outputs[0].dtype in REAL
        return None if fits else Refusal(Reason.DTYPE, f"{x.dtype} by a scale of {scale.dtype} to {node.outputs[0].dtype}")

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return layouts_of(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        dst, names, chain, runs = node.outputs[0], node.node.inputs, post_ops.epilogue(node), Runs.of(node)
        defines = {**storage(x.dtype, "Q"), **storage(scale.dtype, "S"), **storage(dst.dtype)}
        defines |= {
            "EXACT": "float" if x.dtype.is_float else "long" if x.dtype is DType.INT32 else "int",
            **runs.defines(self.caps),
        }
        fours = self._takes_fours(node, runs)
        defines["FOURS"] = fours
        zero: Argument = Read(names[2]) if len(names) > 2 and names[2] else Null()
        arguments = (
            Read(names[0]),
            Read(names[1]),
            zero,
            Write(node.node.outputs[0]),
            *runs.arguments,
            *chain.arguments,
        )
        work, local = spread(ceil_div(x.size, 4), self.caps) if fours else runs.work(self.caps)
        source = assemble("dequantize_linear.cl", defines, chain.source)
        return (Launch("dequantize_linear.cl", source, self.name, arguments, work, local),)

    def _takes_fours(self, node: TypedNode, runs: Runs) -> bool:
        """Whether a work item computes four elements, on devices that read neighbouring ones at once."""
        types = node.given(0).dtype, node.outputs[0].dtype
        becomes_floats = types in ((DType.INT8, DType.FLOAT32), (DType.UINT8, DType.FLOAT32))
        return self.caps.kind != "CPU" and runs.is_one and becomes_floats and not node.post_ops


KERNELS = (Dequantize(),)
