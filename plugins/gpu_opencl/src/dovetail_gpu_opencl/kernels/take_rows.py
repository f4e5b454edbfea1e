"""TakeRows on GPUs, from the matrix as products read it. On CPUs the rows of a file are read where they are."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._packed_blocks import plain_defines
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Read, Write
from dovetail_gpu_opencl.source import C_TYPES, assemble
from dovetail_ops_onnx.mat_mul_blocks import block_of
from dovetail_ops_onnx.take_rows import TakeRows

__all__ = ["KERNELS"]

_BITS = (4, 8, 16)


class TakeRowsKernel(CLKernel):
    """take_rows.cl: an element a work item."""

    name = "take_rows"
    dtypes = frozenset({DType.FLOAT32, DType.UINT8, DType.INT32, DType.INT64})
    has_epilogue = False

    def check(self, node: TypedNode) -> Refusal | None:
        form, rows, indices = _operator(node).format, node.given(0), node.given(1)
        if self.caps.kind == "CPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        if form.bits not in _BITS:
            return Refusal(Reason.ATTRIBUTE, f"numbers of {form.bits} bits; accepted: {', '.join(map(str, _BITS))}")
        if rows.value is None or not rows.dims[0]:
            return Refusal(Reason.LAYOUT, "the rows are not constant, or none")
        if indices.dtype not in (DType.INT32, DType.INT64):
            return Refusal(Reason.DTYPE, f"indices of {indices.dtype}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        form, rows, indices = _operator(node).format, node.given(0).value, node.given(1)
        assert rows is not None
        if not indices.size:
            return ()
        matrix = form.whole(rows)
        block = block_of(matrix.arrays)
        arrays = matrix.arrays if block is None else [block]
        defines: dict[str, object] = {
            **plain_defines(form.bits, form.block_size, form.dtype, form.has_offsets),
            "HEIGHT": form.block_size // 2 if form.bits == 4 else form.block_size,
            "N": len(rows),
            "K": form.columns,
            "COUNT": indices.size,
            "TOGETHER": block is not None,
            "INDEX": C_TYPES[indices.dtype],
        }
        fault = Fault(f"an index is not that of a row; accepted: 0 to {len(rows) - 1}")
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[1]), *map(Constant, arrays), Write(node.node.outputs[0]), fault)
        work, local = spread(node.outputs[0].size, self.caps)
        return (Launch("take_rows.cl", assemble("take_rows.cl", defines), "take_rows", arguments, work, local),)


def _operator(node: TypedNode) -> TakeRows:
    assert isinstance(node.op, TakeRows)
    return node.op


KERNELS = (TakeRowsKernel(),)
