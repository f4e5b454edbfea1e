"""LayerNormalization."""

from collections.abc import Mapping, Sequence

from dovetail.device import Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, one_float
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.kernels._normalize import NormalizeSuffix
from dovetail_gpu_opencl.kernels._pipelined import HALVES, factor_of, load_defines, store_defines
from dovetail_gpu_opencl.kernels._rows import row_defines
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import STORED_TYPES, accumulator, assemble, literal, load, storage
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.rms_normalization import RMSNormalization

__all__ = ["KERNELS", "MOST", "NormalizeRows", "halves_launch"]

MOST = 2048
"""Elements of a row that layer_normalization_halves.cl takes: 64 in the registers of an item."""


class NormalizeRows(CLKernel):
    """layer_normalization.cl."""

    name = "layer_normalization"
    by_content = False
    halves_by_load = True
    is_rms = False
    """Whether rows are divided by the root of the mean of their squares."""

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = one_float(node)
        return _uneven(node) if refusal is None else refusal

    def any_sizes(self, node: TypedNode) -> bool:
        scale = node.given(1)
        return scale.value is not None and scale.size > 1  # rows of one element may grow

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, LayerNormalization | RMSNormalization)
        dtype, rows = node.outputs[0].dtype, _rows(node)
        numbers, acc = row_defines(rows, dtype, self.caps), accumulator(dtype)
        has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
        epsilon = literal(node.op.epsilon, acc)
        defines = {**storage(dtype), "ACC": acc, "EPSILON": epsilon, "HAS_BIAS": has_bias, "RMS": self.is_rms, **numbers}
        chain, group = post_ops.epilogue(node, numbers["VEC"]), numbers["GROUP"]
        names = node.node.inputs
        given = [Read(name) for name in names[: 3 if has_bias else 2]]
        arguments = (*given, Write(node.node.outputs[0]), *chain.arguments)
        source = assemble("layer_normalization.cl", defines, chain.source)
        return (Launch("layer_normalization.cl", source, "layer_normalization", arguments, (rows.count * group,), (group,)),)


def _uneven(node: TypedNode) -> Refusal | None:
    """Refuses statistics as outputs, and parameters that are not one for each element of a row."""
    if len(node.outputs) > 1:
        return Refusal(Reason.ATTRIBUTE, "the outputs Mean and InvStdDev")
    size = _rows(node).size
    # B may be left out.
    for name, given in zip(("Scale", "B"), node.inputs[1:], strict=False):
        if given is not None and given.size != size:
            return Refusal(Reason.SHAPE, f"{name} is {given}; accepted: {size} elements, one for each of a row")
    return None


def _rows(node: TypedNode) -> Lines:
    assert isinstance(node.op, LayerNormalization | RMSNormalization)
    return Lines.of(node.outputs[0].dims, node.op.axis, to_end=True)


class NormalizeHalves(CLKernel):
    """For GPUs with matrix units: layer_normalization_halves.cl."""

    name = "layer_normalization_halves"
    halves_by_load = True
    mixes = True
    dtypes = HALVES

    def check(self, node: TypedNode) -> Refusal | None:
        if not (self.caps.pipeline or self.caps.float_pipeline):
            return Refusal(Reason.CAPABILITY, "made for devices that multiply in a pipeline")
        if factor_of(self.caps, node) not in (node.given(0).dtype, node.outputs[0].dtype):
            return Refusal(Reason.DTYPE, f"{node.given(0)} to {node.outputs[0]}")
        if len({t.dtype for t in node.inputs[1:] if t is not None}) > 1:
            return Refusal(Reason.DTYPE, "Scale and B of several types")
        size = _rows(node).size
        if not 0 < size <= MOST or size % 8:
            return Refusal(Reason.SHAPE, f"rows of {size} elements; accepted: up to {MOST}, multiples of 8")
        return _uneven(node)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, LayerNormalization)
        if not node.outputs[0].size:
            return ()
        parameters = (node.given(1), node.inputs[2] if len(node.inputs) > 2 else None)
        names = (*node.node.inputs[1:3], "")[:2]
        defines = load_defines("T", node.given(0).dtype)
        return (halves_launch(node, parameters, names, node.op.epsilon, defines, (Read(node.node.inputs[0]),)),)


def halves_launch(
    node: TypedNode,
    parameters: Sequence[TensorType | None],
    names: Sequence[str],
    epsilon: float,
    defines: Mapping[str, object],
    sources: Sequence[Argument],
    fragment: str = "",
) -> Launch:
    """The launch of layer_normalization_halves.cl for rows as long as Scale.

    `parameters` and `names` are Scale and B, which may be None, `sources` the arguments that `defines` and `fragment` read.
    """
    result, scale = node.outputs[0], parameters[0]
    assert scale is not None
    size = scale.size
    has_bias = parameters[1] is not None
    own: dict[str, object] = {"HALF_STORAGE": True, "SIZE": size, "ROWS": 4, "HAS_BIAS": has_bias}
    own |= {"EPSILON": literal(epsilon, "float"), "RESULT_T": STORED_TYPES[result.dtype], **store_defines(result.dtype)}
    own |= load_defines("P_T", scale.dtype)
    chain = post_ops.epilogue(node, 8, aligned=True)
    given = [Read(name) for name in names[: 2 if has_bias else 1]]
    arguments = (*sources, *given, Write(node.node.outputs[0]), *ints(result.size // size), *chain.arguments)
    file, entry = "layer_normalization_halves.cl", "layer_normalization_halves"
    source = assemble(file, {**own, **defines}, load("halves.cl"), chain.source, fragment)
    return Launch(file, source, entry, arguments, (ceil_div(result.size // size, 4) * 128,), (128,))


KERNELS = (NormalizeHalves(), NormalizeRows(), NormalizeSuffix())
