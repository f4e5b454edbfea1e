"""LayerNormalization."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.kernels._normalize import NormalizeSuffix
from dovetail_gpu_opencl.kernels._rows import row_defines
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, assemble, literal, storage
from dovetail_ops_onnx.layer_normalization import LayerNormalization

__all__ = ["KERNELS"]


class NormalizeRows(CLKernel):
    """layer_normalization.cl."""

    name = "layer_normalization"
    half_by_load = True
    bfloat16_by_load = True

    def check(self, node: TypedNode) -> Refusal | None:
        if len(node.outputs) > 1:
            return Refusal(Reason.ATTRIBUTE, "the outputs Mean and InvStdDev")
        size = _rows(node).size
        # B may be left out.
        for name, given in zip(("Scale", "B"), node.inputs[1:], strict=False):
            if given is not None and given.size != size:
                return Refusal(Reason.SHAPE, f"{name} is {given}; accepted: {size} elements, one for each of a row")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, LayerNormalization)
        dtype, rows = node.outputs[0].dtype, _rows(node)
        numbers, acc = row_defines(rows, dtype, self.caps), accumulator(dtype)
        has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
        epsilon = literal(node.op.epsilon, acc)
        defines = {**storage(dtype), "ACC": acc, "EPSILON": epsilon, "HAS_BIAS": has_bias, **numbers}
        chain, group = post_ops.epilogue(node, numbers["VEC"]), numbers["GROUP"]
        names = node.node.inputs
        given = [Read(name) for name in names[: 3 if has_bias else 2]]
        arguments = (*given, Write(node.node.outputs[0]), *chain.arguments)
        source = assemble("layer_normalization.cl", defines, chain.source)
        return (Launch("layer_normalization.cl", source, "layer_normalization", arguments, (rows.count * group,), (group,)),)


def _rows(node: TypedNode) -> Lines:
    assert isinstance(node.op, LayerNormalization)
    return Lines.of(node.outputs[0].dims, node.op.axis, to_end=True)


KERNELS = (NormalizeRows(), NormalizeSuffix())
