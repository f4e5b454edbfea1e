"""RoiAlign."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, ceil_div, spread
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import accumulator, assemble, literal, storage
from dovetail_ops_onnx.roi_align import RoiAlign_10

__all__ = ["KERNELS"]

_CHANNELS = (2, 32)
"""Channels of a work item, on GPUs and on CPUs: places and weights of samples are computed once for them. With more on GPUs
planes of 200 x 200 take longer, because neighbouring items read fewer neighbours of a plane."""


class RoiAlignKernel(CLKernel):
    """roi_align.cl: a bin of neighbouring channels a work item."""

    name = "roi_align"
    halves_by_load = True
    has_epilogue = False
    dtypes = FLOATS | {DType.INT64}

    def check(self, node: TypedNode) -> Refusal | None:
        x = node.given(0)
        return None if x.size or not node.outputs[0].size else Refusal(Reason.SHAPE, f"boxes in {x}, which has no elements")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, RoiAlign_10)
        x, dst = node.given(0), node.outputs[0]
        acc = accumulator(dst.dtype)
        sampling = node.op.sampling()
        channels = min(_CHANNELS[self.caps.kind == "CPU"], max(1, x.dims[1]))
        defines = {
            **storage(dst.dtype),
            "ACC": acc,
            "CHANNELS": channels,
            "RATIO": sampling.ratio,
            "SCALE": literal(sampling.scale, acc),
            "SHIFT": literal(0.5 if sampling.half_pixel else 0.0, acc),
            "SHIFTED": sampling.half_pixel,
            "MAX": sampling.mode == "max",
        }
        size = dst.dims[0] * ceil_div(x.dims[1], channels) * sampling.height * sampling.width
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in node.node.inputs),
            Write(node.node.outputs[0]),
            *ints(size, *x.dims, sampling.height, sampling.width),
            Fault(f"a box is not finite, or its batch is out of range; accepted: 0 to {x.dims[0] - 1}"),
        )
        work, local = spread(size, self.caps)
        source = assemble("roi_align.cl", defines)
        return (Launch("roi_align.cl", source, self.name, arguments, work, local, self.caps.exact_options),)


KERNELS = (RoiAlignKernel(),)
