"""NormalizedSum: layer_normalization_halves.cl with rows from tables."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel
from dovetail_gpu_opencl.kernels._normalized_sum import NormalizedSum
from dovetail_gpu_opencl.kernels._pipelined import HALVES, load_defines
from dovetail_gpu_opencl.kernels.layer_normalization import MOST, halves_launch
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, ints
from dovetail_gpu_opencl.source import C_TYPES

__all__ = ["KERNELS"]


class NormalizedSumHalves(CLKernel):
    """For GPUs with matrix units; an index out of range reads row 0 and raises the fault flag."""

    name = "normalized_sum"
    halves_by_load = True
    has_epilogue = False
    dtypes = FLOATS | {DType.INT32, DType.INT64}

    def check(self, node: TypedNode) -> Refusal | None:
        op, size = _operator(node), node.outputs[0].dims[-1]
        if not (self.caps.pipeline or self.caps.float_pipeline):
            return Refusal(Reason.CAPABILITY, "made for devices that multiply in a pipeline")
        if not 0 < size <= MOST or size % 8:
            return Refusal(Reason.SHAPE, f"rows of {size} elements; accepted: up to {MOST}, multiples of 8")
        parameters = [t for t in node.inputs[:2] if t is not None]
        if any(t.size != size for t in parameters) or len({t.dtype for t in parameters}) > 1:
            return Refusal(Reason.SHAPE, f"Scale and B are {', '.join(map(str, parameters))}; accepted: {size} of one type")
        tables = [node.given(table) for table, _ in op.tables]
        if any(t.dims[0] == 0 for t in tables):
            return Refusal(Reason.SHAPE, "an empty table")
        for tensor in (*parameters, *tables, *(node.given(i) for i in op.others(node)), node.outputs[0]):
            if tensor.dtype not in HALVES:
                return Refusal(Reason.DTYPE, f"{tensor}")
        return None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        op, names = _operator(node), node.node.inputs
        defines, fragment, arguments = _sources(op, node)
        return (halves_launch(node, node.inputs[:2], names[:2], op.epsilon, defines, arguments, fragment),)


def _sources(op: NormalizedSum, node: TypedNode) -> tuple[dict[str, object], str, list[Argument]]:
    """The defines and the fragment that add up the rows, and the arguments that these read."""
    names, size = node.node.inputs, node.outputs[0].dims[-1]
    defines: dict[str, object] = {"ROW_PLACE": True}
    arguments: list[Argument] = []
    parameters, terms, places = [], [], ""
    for number, (table, index) in enumerate(op.tables):
        rows, c_type = node.given(table).dims[0], C_TYPES[node.given(index).dtype]
        defines |= load_defines(f"T{number}", node.given(table).dtype)
        parameters += [f"__global const T{number}* restrict t{number}", f"__global const {c_type}* restrict i{number}"]
        parameters += [f"__global int* faults{number}", f"const int fault{number}"]
        places += f"  const long r{number} = row_place(i{number}[at], {rows}, faults{number} + fault{number}); \\\n"
        terms.append(f"LOAD_V_T{number}(t{number} + r{number} * SIZE + (c))")
        fault = Fault(f"{names[index]!r}: an index is outside axis 0 of size {rows}; accepted: {-rows} to {rows - 1}")
        arguments += [Read(names[table]), Read(names[index]), fault]
    for position in op.others(node):
        addend = node.given(position)
        defines |= load_defines(f"T{position}", addend.dtype)
        parameters += [f"__global const T{position}* restrict t{position}", f"const int repeated{position}"]
        terms.append(f"LOAD_V_T{position}(t{position} + at % repeated{position} * SIZE + (c))")
        arguments += [Read(names[position]), *ints(addend.size // size)]
    defines |= {"SOURCE_ARGS": ", ".join(parameters), "SOURCE(c)": f"({' + '.join(terms)})"}
    return defines, f"#define PLACES \\\n{places}\n", arguments


def _operator(node: TypedNode) -> NormalizedSum:
    op = node.op
    assert isinstance(op, NormalizedSum)
    return op


KERNELS = (NormalizedSumHalves(),)
