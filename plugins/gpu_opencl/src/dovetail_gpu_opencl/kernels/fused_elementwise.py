"""FusedElementwise: generated kernels of several elementwise nodes, and reductions that compute what they read."""

import dataclasses
from collections.abc import Sequence

from dovetail.device import Accepted, LayerConfig, Reason, Refusal, TypedNode
from dovetail.errors import CompileError
from dovetail_gpu_opencl.elementwise import Elementwise
from dovetail_gpu_opencl.formulas import Formula, formula
from dovetail_gpu_opencl.kernel import CLKernel, is_like, spread
from dovetail_gpu_opencl.kernels._cumulative import Cumulative
from dovetail_gpu_opencl.kernels._fused_elementwise import FusedElementwise
from dovetail_gpu_opencl.kernels._reduce import Reduce
from dovetail_gpu_opencl.launch import Launch, Write
from dovetail_gpu_opencl.sizes import RuntimeSizes
from dovetail_gpu_opencl.source import C_TYPES, STORED_TYPES, assemble, stored
from dovetail_gpu_opencl.table import listed, named

__all__ = ["KERNELS"]


class Fused(Elementwise):
    """For GPUs, an element a work item."""

    name = "fused_elementwise"
    dtypes = frozenset(C_TYPES)
    has_epilogue = False
    halves_by_load = True
    mixes = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind == "CPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        op = _operator(node)
        if op.reader is not None or op.dims != node.outputs[0].dims:
            return Refusal(Reason.SHAPE, "not an expression of these sizes")
        return None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found = super().configurations(node)
        return found if _operator(node).is_aligned else found[:1]

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        result, sizes = node.outputs[0], RuntimeSizes()
        last = sizes.number(result.size, "last")
        found = _formula(self, node, result.order, sizes)
        c_type = STORED_TYPES[result.dtype]
        value = stored(c_type, "dst", "o", f"computed(o{found.passed})")
        kernel = (
            f"__kernel void fused_elementwise(__global {c_type}* dst{found.parameters}) {{\n"
            f"  const int o = get_global_id(0);\n  if (o < {last}) {value};\n}}\n"
        )
        source = assemble("", {"HALF_STORAGE": "half" in found.source + kernel}, found.source, kernel)
        work, local = spread(result.size, self.caps)
        arguments = (Write(node.node.outputs[0]), *found.arguments)
        launch = Launch("fused_elementwise (generated)", source, "fused_elementwise", arguments, work, local)
        return (_exact(launch, found, self.caps.exact_options),)

    def in_place(self, node: TypedNode) -> Sequence[str]:
        pairs = zip(node.node.inputs, node.inputs, strict=True)
        return [name for name, t in pairs if t is not None and t.dims == node.outputs[0].dims and is_like(t, node.outputs[0])]


class FusedReader(CLKernel):
    """For GPUs: reductions and running sums."""

    name = "fused_reader"
    dtypes = frozenset(C_TYPES)
    halves_by_load = True
    mixes = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind == "CPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        op = _operator(node)
        if op.reader is None:
            return Refusal(Reason.ATTRIBUTE, "not an expression that a reduction reads")
        found = self._reading(_reader(node))
        return found if isinstance(found, Refusal) else None

    def title(self, node: TypedNode) -> str:
        """The name of the kernel in reports, for a node that it accepted."""
        reading = self._reading(_reader(node))
        return self.name if isinstance(reading, Refusal) else f"fused_{reading.name}"

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        reading = self._reading(_reader(node))
        assert not isinstance(reading, Refusal)
        found = _formula(self, node, range(len(_operator(node).dims)), RuntimeSizes("computed_n"))
        return (_exact(reading.launch(_reader(node), found), found, self.caps.exact_options),)

    def _reading(self, reader: TypedNode) -> Reduce | Cumulative | Refusal:
        """The kernel of the node that reads the expression."""
        refusal = Refusal(Reason.OPERATOR, reader.op.key)
        for kernel in listed(reader.op):
            if isinstance(kernel, Reduce | Cumulative):
                bound = kernel.on(self.caps, self.packed)
                answer = bound.supports(reader)
                if isinstance(answer, Accepted):
                    return bound
                refusal = answer
        return refusal


def _exact(launch: Launch, found: Formula, options: tuple[str, ...]) -> Launch:
    """The launch, with quotients rounded right."""
    if "/" not in found.source:
        return launch
    return dataclasses.replace(launch, options=tuple(dict.fromkeys((*launch.options, *options))))


def _formula(asking: CLKernel, node: TypedNode, order: Sequence[int], sizes: RuntimeSizes) -> Formula:
    """The expression with its axes in this order."""
    op, steps = _operator(node), []
    for name, one in zip(op.makers, op.placed(order), strict=True):
        maker = named(name, one.op, asking)
        found = maker.steps(one) if isinstance(maker, Elementwise) else None
        if found is None:
            raise CompileError(f"node {node.node}: the kernel {name!r} makes no element of {one.op.key}")
        steps.append(found)
    buffers = dict(zip(op.reads, node.node.inputs, strict=False))
    given = op.given(node.inputs, order)
    result = op.result(order)
    return formula(steps, given, buffers, result, sizes)


def _reader(node: TypedNode) -> TypedNode:
    """The node that reads the expression, with the type of that."""
    op, count = _operator(node), len(_operator(node).reads)
    assert op.reader is not None
    one = dataclasses.replace(node.node, op=op.reader.op, inputs=("", *node.node.inputs[count:]))
    return TypedNode(one, (op.result(range(len(op.dims))), *node.inputs[count:]), node.outputs, node.operands)


def _operator(node: TypedNode) -> FusedElementwise:
    op = node.op
    assert isinstance(op, FusedElementwise)
    return op


KERNELS = (Fused(), FusedReader())
