"""Elementwise nodes that read each other as one C function of the index of an element, for kernels that load what it computes."""

from collections.abc import Iterator, Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.device import DType, Eltwise, TensorType
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import access_to
from dovetail_gpu_opencl.elementwise import Steps, input_name, statements_of
from dovetail_gpu_opencl.launch import Argument, Read
from dovetail_gpu_opencl.narrow import VALUES
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import STORED_TYPES, accumulator

__all__ = ["Formula", "formula"]


@dataclass(frozen=True, slots=True)
class Formula:
    """`computed(o` + `passed` + `)` is element `o`, of type `c_type`; `source` defines it, a kernel declares `parameters`."""

    source: str
    parameters: str
    passed: str
    arguments: tuple[Argument, ...]
    c_type: str

    @property
    def defines(self) -> dict[str, object]:
        """For kernel files that take COMPUTED."""
        own = {"SOURCE_ARGS": self.parameters.removeprefix(", "), "COMPUTED(i)": f"computed((i){self.passed})"}
        return own | ({"HALF_STORAGE": True} if "half" in self.source else {})


def formula(
    steps: Sequence[Steps], given: Mapping[str, TensorType], buffers: Mapping[str, str], result: TensorType, sizes: RuntimeSizes
) -> Formula:
    """The last of `steps`, each of which reads the results of those before it, and `given` values.

    All types have axes in the order in which the result is in memory, and broadcast to it; `buffers` has the name of the value
    from which each given one is read. `sizes` collects the numbers of indices.
    """
    variables, lines = dict[str, str](), []
    for number, (name, tensor) in enumerate(given.items()):
        access = access_to(tensor, result, 0, sizes, number)
        assert access is not None
        c_type = _c_type(tensor.dtype)
        lines.append(f"const {c_type} x{number} = {access.load(f'p{number}', STORED_TYPES[tensor.dtype], c_type, 1)};")
        variables[name] = f"x{number}"
    for number, step in enumerate(steps):
        lines.append(_step(step, f"v{number}", variables))
        variables[step.node.node.outputs[0]] = f"v{number}"
    pointers = [(f"p{number}", STORED_TYPES[tensor.dtype]) for number, tensor in enumerate(given.values())]
    parameters = "".join(f", __global const {c_type}* {name}" for name, c_type in pointers) + sizes.parameters
    c_type = _c_type(steps[-1].node.outputs[0].dtype)
    body = "\n  ".join(lines)
    floats = [p for step in steps if _c_type(step.node.outputs[0].dtype) == "float" for p in step.node.node.post_ops]
    source = post_ops.own_functions(floats, "float", 1)
    source += f"static {c_type} computed(int o{parameters}) {{\n{post_ops.SEPARATE}  {body}\n  return v{len(steps) - 1};\n}}\n"
    passed = "".join(f", {name}" for name, _ in pointers) + sizes.passed
    return Formula(source, parameters, passed, (*(Read(buffers[name]) for name in given), *sizes.arguments), c_type)


def _step(step: Steps, variable: str, variables: Mapping[str, str]) -> str:
    """The declaration of a variable, and the blocks that set it to the result of a step."""
    node, types = step.node, [tensor.dtype for tensor in step.types]
    kind = _c_type(node.outputs[0].dtype)
    loads = " ".join(
        f"const {_c_type(dtype)} {input_name(i)} = {variables[name]};"
        for i, (name, dtype) in enumerate(zip(step.inputs, types, strict=True))
    )
    text = statements_of(step.text, types, node.outputs[0].dtype)
    lines = [f"{kind} {variable}; {{ {loads} {text} {variable} = s; }}"]
    if node.post_ops:
        operands = _operands(step, kind, variables)
        chain = "".join(post_ops.statement(p, kind, kind, operands) for p in node.post_ops).replace("\n", "")
        lines.append(f"{{ {kind} s = {variable};{chain} {variable} = s; }}")
    return "\n  ".join(lines)


def _operands(step: Steps, kind: str, variables: Mapping[str, str]) -> Iterator[str]:
    return (f"({kind}){variables[p.operand]}" for p in step.node.post_ops if not isinstance(p, Eltwise))


def _c_type(dtype: DType) -> str:
    """The C type of a value of this data type in a function."""
    return accumulator(dtype) if dtype.is_float else VALUES.get(dtype, STORED_TYPES[dtype])
