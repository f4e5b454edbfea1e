"""Elementwise kernels, generated: an expression over the inputs, or a chain of post-ops over one of them.

Each work item computes `VEC` consecutive elements; the last one falls back to single elements. Vectors are for
floating-point results on CPUs; GPUs read one element a work item, which is coalesced already.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import ClassVar

from dovetail.dataclass import dataclass
from dovetail.device import (
    ANY,
    NHWC,
    PLAIN,
    DType,
    Eltwise,
    LayerConfig,
    Layout,
    PostOp,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
)
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import Access, Moved, access_to, broadcasts
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, is_like, spread
from dovetail_gpu_opencl.launch import Launch, Read, Scratch, Write
from dovetail_gpu_opencl.narrow import VALUES, is_narrow
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import C_TYPES, STORED_TYPES, accumulator, assemble, stored, vector_at

__all__ = [
    "Chain",
    "Elementwise",
    "Expression",
    "Load",
    "Steps",
    "as_chain",
    "elementwise_configurations",
    "elementwise_launch",
    "in_order_of",
    "input_name",
    "statements_of",
    "vector_width",
]

_LETTERS = "abcdefghijklmn"
_RUN = 64
"""Elements of a work item on CPUs where operands broadcast."""
_CONVERTED = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
"""Types between which loads and stores convert."""
_AT_ONCE = 24
"""Inputs of one launch of a fold: with the result, 200 of the 256 bytes of arguments that every OpenCL device takes."""


@dataclass(frozen=True, slots=True)
class Load:
    """An input of a generated kernel: where it is read from, and its type; `moved` for one that is a part of what is read."""

    source: Read | Scratch
    type: TensorType
    moved: Moved | None = None


@dataclass(frozen=True, slots=True)
class Steps:
    """How an element is made: `text` makes `s` of the values `inputs`, which are `a`, `b`, ...; the post-ops of `node` follow."""

    inputs: tuple[str, ...]
    types: tuple[TensorType, ...]
    text: str
    node: TypedNode


class Elementwise(CLKernel):
    """Base: any layout; where something broadcasts, plain or with the channels innermost."""

    name = "elementwise"
    elementwise = True

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return elementwise_configurations(node)

    def steps(self, node: TypedNode) -> Steps | None:
        """How an element is made; None where it takes several launches."""
        raise NotImplementedError


class Expression(Elementwise):
    """A C expression over the inputs `a`, `b`, `c`, ... which broadcast to the output.

    Floating-point inputs are loaded as float (double for float64), others in their own type, bools as 0 and 1. `ints` is the
    expression where the first input is not of floating point; None refuses these. With `fold` the expression is applied
    to the first two inputs, then to that result and the third, and so on; `last` is applied to the final `a`, with N inputs.
    A fold of more than `_AT_ONCE` inputs takes several launches, with the result so far in a work buffer.
    Expressions that work on float8 as on float are `vectorizable`.
    """

    halves_by_load = True
    mixes = True
    dtypes: ClassVar = frozenset(C_TYPES)
    by_content = False

    def __init__(
        self, floats: str | None, ints: str | None = None, *, vectorizable: bool = False, fold: bool = False, last: str = ""
    ) -> None:
        self._floats, self._ints, self._vectorizable, self._fold, self._last = floats, ints, vectorizable, fold, last

    def text(self, node: TypedNode) -> str | None:
        """The expression for the data types of this node; None when there is none."""
        first = node.inputs[0]
        return self._floats if first is not None and first.dtype.is_float else self._ints

    def check(self, node: TypedNode) -> Refusal | None:
        if self.text(node) is None:
            return Refusal(Reason.DTYPE, f"{node.given(0).dtype}")
        if len(node.outputs) != 1:
            return Refusal(Reason.ATTRIBUTE, f"{len(node.outputs)} outputs")
        for tensor in node.inputs:
            if tensor is None or not broadcasts(tensor, node.outputs[0]):
                return Refusal(Reason.SHAPE, f"{tensor} does not broadcast to {node.outputs[0]}")
        if len(node.inputs) > len(_LETTERS) and not self._fold:
            return Refusal(Reason.SHAPE, f"{len(node.inputs)} inputs; accepted: at most {len(_LETTERS)}")
        return None

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def is_alike(self, node: TypedNode) -> bool:
        """Whether inputs and result are loaded as the same C type, so that vectors of them need no conversion."""
        types = (*(t for t in node.inputs if t is not None), node.outputs[0])
        floats = {accumulator(t.dtype) if t.dtype.is_float else None for t in types}
        return len(floats) == 1 and None not in floats

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        text = self.text(node)
        assert text is not None
        node = in_order_of(node)
        types = [t for t in node.inputs if t is not None]
        vec = vector_width(node.outputs[0], self.caps) if self._vectorizable and self.is_alike(node) else 1
        loads = [Load(Read(name), tensor) for name, tensor in zip(node.node.inputs, types, strict=True)]
        launches = []
        while len(loads) > _AT_ONCE:
            partial = _partial(node, types[0])
            buffer = Scratch(f"scratch:{node.name}:0", partial.nbytes)
            taken, loads = loads[:_AT_ONCE], [Load(buffer, partial), *loads[_AT_ONCE:]]
            inner = dataclasses.replace(node, node=dataclasses.replace(node.node, post_ops=()), outputs=(partial,), operands=())
            launches.append(elementwise_launch(self.caps, inner, taken, self._statements(text, len(taken)), vec, buffer))
        last = self._statements(text, len(loads), self._last.replace("N", str(len(types))))
        return (*launches, elementwise_launch(self.caps, node, loads, last, vec))

    def steps(self, node: TypedNode) -> Steps | None:
        text, types = self.text(node), tuple(t for t in node.inputs if t is not None)
        if text is None or len(types) > _AT_ONCE:
            return None
        return Steps(node.node.inputs, types, self._statements(text, len(types), self._last.replace("N", str(len(types)))), node)

    def in_place(self, node: TypedNode) -> Sequence[str]:
        inputs = zip(node.node.inputs, node.inputs, strict=True)
        return [n for n, t in inputs if t is not None and is_like(t, node.outputs[0])] + list(super().in_place(node))

    def _statements(self, text: str, count: int, last: str = "") -> str:
        if not self._fold:
            return f"const R s = {text};"
        # The running result is called `a` in the expression, the next input `b`; the loaded inputs have these names outside.
        step = "{{ const A x = s, y = {}; {{ const A a = x, b = y; s = {}; }} }}"
        steps = " ".join(step.format(input_name(index), text) for index in range(1, count))
        end = f" {{ const A a = s; s = {last}; }}" if last else ""
        return f"A s = a;{steps}{end}"


class Chain(Elementwise):
    """Any operator that is a chain of post-ops over one of its inputs (`Operator.post_ops`)."""

    name = "chain"
    halves_by_load = True
    mixes = True

    def applies(self, node: TypedNode) -> Refusal | None:
        return Refusal(Reason.OPERATOR, node.op.key) if as_chain(node) is None else None

    def check(self, node: TypedNode) -> Refusal | None:
        found = as_chain(node)
        return None if found is None else post_ops.check(found[1])

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        found = as_chain(node)
        assert found is not None
        index, chained = found
        chained = in_order_of(chained)
        source = chained.inputs[index]
        assert source is not None
        vec = vector_width(node.outputs[0], self.caps)
        return (elementwise_launch(self.caps, chained, [Load(Read(node.node.inputs[index]), source)], "const A s = a;", vec),)

    def steps(self, node: TypedNode) -> Steps | None:
        found = as_chain(node)
        assert found is not None
        index, chained = found
        return Steps((node.node.inputs[index],), (node.given(index),), "const A s = a;", chained)

    def in_place(self, node: TypedNode) -> Sequence[str]:
        found = as_chain(node)
        assert found is not None
        index, chained = found
        source = node.given(index)
        own = [node.node.inputs[index]] if is_like(source, node.outputs[0]) else []
        return [*own, *super().in_place(chained)]


def elementwise_configurations(node: TypedNode) -> Sequence[LayerConfig]:
    """Any layout; where something broadcasts, plain, and with the channels innermost if the rest lies along them."""
    found = LayerConfig.elementwise(node)
    innermost = None if ANY in found.outputs else _channels_innermost(node)
    return (found,) if innermost is None else (found, innermost)


def _channels_innermost(node: TypedNode) -> LayerConfig | None:
    """The layouts of a node with an operand for each channel or pixel, such as the scale of a channel."""
    result = node.outputs[0]
    if not NHWC.fits(result.rank):
        return None

    def side(types: Sequence[TensorType | None]) -> tuple[Layout, ...]:
        return tuple(NHWC if t is not None and t.dims == result.dims else PLAIN for t in types)

    others = [t for t in (*node.inputs, *node.operands) if t is not None and t.dims != result.dims]
    if not all(post_ops.lies_along(t, result, NHWC) for t in others):
        return None
    return LayerConfig(side(node.inputs), side(node.outputs), side(node.operands))


def in_order_of(node: TypedNode) -> TypedNode:
    """The node with all axes in the order in which the result is in memory."""
    result = node.outputs[0]
    if result.layout == PLAIN:
        return node
    inputs = tuple(t and post_ops.in_order(t, result) for t in node.inputs)
    return dataclasses.replace(post_ops.in_memory_order(node), inputs=inputs)


def as_chain(node: TypedNode) -> tuple[int, TypedNode] | None:
    """The input that the node's operator is a chain over, and the node with that chain before its own; else None."""
    if len(node.outputs) != 1:
        return None
    names = node.node.inputs
    types = dict(zip(names, node.inputs, strict=True))
    for index, source in enumerate(node.inputs):
        if source is None or not _is_converted(source, node.outputs[0]):
            continue
        chain = node.op.post_ops(node.inputs, names, index)
        if chain is None or not all(isinstance(p, Eltwise) or types.get(p.operand) for p in chain):
            continue
        return index, _with_chain(node, chain, types)
    return None


def _is_converted(source: TensorType, result: TensorType) -> bool:
    """Whether the values have one type, or differ by the floating-point type alone."""
    if source == result:
        return True
    kinds = {source.dtype, result.dtype}
    return kinds <= _CONVERTED and (source.dims, source.layout) == (result.dims, result.layout)


def _with_chain(node: TypedNode, chain: Sequence[PostOp], types: dict[str, TensorType | None]) -> TypedNode:
    operands = [types[p.operand] for p in chain if not isinstance(p, Eltwise)]
    inner = dataclasses.replace(node.node, post_ops=(*chain, *node.post_ops))
    return TypedNode(inner, node.inputs, node.outputs, (*(t for t in operands if t is not None), *node.operands))


def vector_width(result: TensorType, caps: Capabilities) -> int:
    """How many elements one work item computes."""
    return caps.lanes(accumulator(result.dtype)) if caps.kind == "CPU" else 1


def elementwise_launch(
    caps: Capabilities,
    node: TypedNode,
    loads: Sequence[Load],
    statements: str,
    vec: int,
    written: Scratch | None = None,
    *,
    moved: Mapping[int, Moved] | None = None,
) -> Launch:
    """The launch of a generated kernel.

    It loads `loads` as `a`, `b`, ...; `statements` compute `s` from them, with `A` for the C type of `a` and `R` for that of the
    result; the node's post-ops follow. Each work item computes `vec` elements, and writes them into `written`, else into the
    node's output. `moved` as for `post_ops.epilogue`.
    """
    result, types = node.outputs[0], [load.type for load in loads]
    vec = 1 if any(is_narrow(t.dtype) for t in (result, *types)) else vec
    chain, sizes = post_ops.epilogue(node, vec, 0, moved=moved), RuntimeSizes()
    last, accesses = sizes.number(result.size, "last"), []
    for index, load in enumerate(loads):
        access = access_to(load.type, result, 0, sizes, index) if load.moved is None else load.moved.access(sizes, index)
        assert access is not None
        accesses.append(access)
    dtypes = tuple(t.dtype for t in types)
    # On CPUs indices are computed once for a run of elements, for each of them they take 4 ns. Chains need vectors more.
    is_spread = any(access.index not in ("o", "0") for access in accesses) and all(access.run != "any" for access in accesses)
    step = _RUN if caps.kind == "CPU" and is_spread and (vec == 1 or not node.post_ops) else vec
    kernel = _text(dtypes, result.dtype, tuple(accesses), statements, vec, step, last, sizes.parameters, bool(node.post_ops))
    output = written or Write(node.node.outputs[0])
    arguments = (*(load.source for load in loads), output, *sizes.arguments, *chain.arguments)
    work, local = spread(ceil_div(result.size, step), caps)
    source, divides = _source(kernel, chain.source)
    # A quotient is a result that others round: what the device can do best is right, and memory sets the time here.
    options = caps.exact_options if divides else ()
    return Launch("elementwise (generated)", source, "elementwise", arguments, work, local, options)


@functools.lru_cache(512)
def _source(kernel: str, chain: str) -> tuple[str, bool]:
    """The program, and whether it divides."""
    return assemble("", {"HALF_STORAGE": "half" in kernel + chain}, chain, kernel), "/" in kernel + chain


@functools.lru_cache(512)
def _text(
    dtypes: Sequence[DType],
    result: DType,
    accesses: Sequence[Access],
    statements: str,
    vec: int,
    step: int,
    last: str,
    parameters: str,
    has_chain: bool,
) -> str:
    """The kernel; kept, because a node has the same for all sizes."""
    single = _block(dtypes, result, accesses, statements, 1, has_chain)
    if step > vec:
        body = _in_runs(dtypes, result, accesses, statements, step, last, has_chain)
    elif vec == 1:
        body = f"  const int o = get_global_id(0);\n  if (o < {last}) {single}"
    else:
        body = (
            f"  int o = get_global_id(0) * {vec};\n"
            f"  if (o + {vec} <= {last}) {_block(dtypes, result, accesses, statements, vec, has_chain)}"
            f"  else for (; o < {last}; ++o) {single}"
        )
    inputs = "".join(f"__global const {STORED_TYPES[dtype]}* p{i}, " for i, dtype in enumerate(dtypes))
    taken = f"{inputs}__global {STORED_TYPES[result]}* dst{parameters}{' POST_ARGS' if has_chain else ''}"
    return f"__kernel void elementwise({taken}) {{\n{post_ops.SEPARATE}{body}}}\n"


def _in_runs(
    dtypes: Sequence[DType], result: DType, accesses: Sequence[Access], statements: str, step: int, last: str, has_chain: bool
) -> str:
    """The body for `step` elements one by one, with indices computed where a run begins."""
    bases = " ".join(f"const int at{i} = {access.index};" for i, access in enumerate(accesses))
    ends = " ".join(f"stop = min(stop, o - o % {access.length} + {access.length});" for access in accesses if access.length)
    moved = [Access(f"at{i} + o - from" if access.run == "next" else f"at{i}", access.run) for i, access in enumerate(accesses)]
    return (
        f"  const long first = get_global_id(0) * (long){step};\n  const int end = min(first + {step}, (long){last});\n"
        f"  for (int from = min(first, (long)end), stop; from < end; from = stop) {{\n"
        f"  const int o = from; {bases}\n  stop = end; {ends}\n"
        f"  for (int o = from; o < stop; ++o) {_block(dtypes, result, moved, statements, 1, has_chain)}  }}\n"
    )


def _block(dtypes: Sequence[DType], result: DType, accesses: Sequence[Access], statements: str, vec: int, has_chain: bool) -> str:
    """Loads, the statements that make `s`, the chain, and the store, for `vec` elements from `o` on."""
    out = STORED_TYPES[result]
    width = str(vec) if vec > 1 else ""
    lines = []
    for index, (dtype, access) in enumerate(zip(dtypes, accesses, strict=True)):
        c_type = _value_type(dtype)
        lines.append(f"const {c_type}{width} {input_name(index)} = {access.load(f'p{index}', STORED_TYPES[dtype], c_type, vec)};")
    text = statements_of(statements, dtypes, result, width)
    value = ("POST_V(s, o)" if vec > 1 else "POST(s, o)") if has_chain else "s"
    return "{\n    " + "\n    ".join([*lines, text, _store(out, vec, value)]) + "\n  }\n"


def statements_of(text: str, dtypes: Sequence[DType], result: DType, width: str = "") -> str:
    """Statements that make `s`, with C types of `width` elements in place of `A` and `R`, also in `convert_R`."""
    # Doubles must not be rounded to float on their way to half.
    kind = "double" if result is DType.FLOAT16 and DType.FLOAT64 in dtypes else _value_type(result)
    return re.sub(
        r"\bA\b",
        _value_type(dtypes[0]) + width,
        text.replace("const R ", f"const {kind}{width} ").replace("convert_R(", f"convert_{kind}{width}("),
    )


def _value_type(dtype: DType) -> str:
    return accumulator(dtype) if dtype.is_float else VALUES.get(dtype, STORED_TYPES[dtype])


def input_name(index: int) -> str:
    """The name of an input in expressions and statements."""
    return _LETTERS[index] if index < len(_LETTERS) else f"input{index}"


def _partial(node: TypedNode, first: TensorType) -> TensorType:
    """The type of a fold's result so far: of the result's shape, in the data type in which the fold computes."""
    wide = DType.FLOAT64 if first.dtype is DType.FLOAT64 else DType.FLOAT32
    return dataclasses.replace(node.outputs[0], dtype=wide if first.dtype.is_float else first.dtype, value=None)


def _store(c_type: str, vec: int, value: str) -> str:
    if vec == 1:
        return f"{stored(c_type, 'dst', 'o', value)};"
    if c_type == "half":
        return f"vstore_half{vec}_rte({value}, 0, dst + o);"
    return f"{vector_at(c_type, vec, 'dst + o', written=True)} = convert_{c_type}{vec}({value});"
