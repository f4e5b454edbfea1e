"""The base of all kernels, and the plans by which they run nodes: primitives and the memory of their arguments."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import (
    PLAIN,
    AbstractOperator,
    Accepted,
    Binary,
    DType,
    Eltwise,
    Kernel,
    LayerConfig,
    Layout,
    PostOp,
    Reason,
    Refusal,
    Sum,
    TensorType,
    TypedNode,
)
from dovetail_cpu_onednn.binding import MemoryDesc, PrimitiveDesc, Stream, Unimplemented
from dovetail_cpu_onednn.descriptors import describe, in_rank, number_of, plain, token_of, tokens
from dovetail_cpu_onednn.handles import is_reference
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import naming_out_of_memory
from dovetail_cpu_onednn.nan.bounds import has_clip, stays_finite
from dovetail_cpu_onednn.nan.scan import holds_no_nan_or

__all__ = [
    "LOW",
    "AcceptedPlan",
    "AnyLayoutKernel",
    "Argument",
    "NodePlan",
    "OnednnKernel",
    "PrimitiveKernel",
    "Refused",
    "Stage",
    "is_constant",
    "relaid",
    "require_data",
    "value_argument",
    "when_asked",
]


class Refused(Exception):  # an answer, not an error
    """Raised inside a kernel that does not run the node."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)


@dataclass(frozen=True, slots=True)
class Argument:
    """One memory of a primitive: `place` is `input`, `output` or `operand` (of a post-op), `index` which one of the node's.

    `desc` is the layout of the value. `wanted` is the one that the primitive takes, for constants: they are copied into it once.
    `flexible`: the layout may be other than plain. `content` makes the constant where it differs from the input; `repack` does so
    from the input alone; in the place `value` it is `value`. In the place `scratch` is number `index` of the plan's work buffers.
    `offset`: bytes of the value that come before it.
    """

    arg: int
    place: str
    index: int
    desc: MemoryDesc
    wanted: MemoryDesc | None = None
    flexible: bool = False
    content: Callable[[], NDArray[Any]] | None = None
    repack: Callable[[NDArray[Any]], NDArray[Any]] | None = None
    value: NDArray[Any] | None = None
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Stage:
    """One primitive with its arguments. `unless_shared`: left out when the result shares the memory of that operand.

    `is_number`: it copies a single number from an input to a work buffer in int32, which NumPy does in its place.
    """

    desc: PrimitiveDesc
    arguments: tuple[Argument, ...]
    unless_shared: int | None = None
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class NodePlan:
    """The stages that compute a node. `shared` is the operand in whose memory the result must be written, if there is one.

    `scratch` has the bytes of work buffers besides the primitives' own.
    """

    stages: tuple[Stage, ...]
    shared: int | None = None
    scratch: tuple[int, ...] = ()
    _name: str | None = field(default=None, init=False, compare=False, repr=False)

    @property
    def name(self) -> str:
        """The implementations, as oneDNN names them."""
        if len(self.stages) == 1:  # mostly
            return self.stages[0].desc.implementation
        found = self._name
        if found is None:
            telling = [s for s in self.stages if s.unless_shared is None and not s.is_number]
            found = " + ".join(dict.fromkeys(s.desc.implementation for s in telling))
            object.__setattr__(self, "_name", found)
        return found

    @property
    def is_reference(self) -> bool:
        """Whether oneDNN runs a part of it by its slow reference, or by pooling that is as slow."""
        # Mostly of one stage; four times for each node.
        return self.stages[0].desc.is_reference if len(self.stages) == 1 else is_reference(self.name)

    @property
    def is_slow(self) -> bool:
        """Whether oneDNN computes it by its reference, or by copying windows into a matrix."""
        return "ref" in self.name or "gemm:" in self.name

    def is_in(self, node: TypedNode) -> bool:
        """Whether the layouts of the node's types are those that the primitives chose, plain where they had no choice.

        False where what they chose is slow: kernels look for a faster way in the layouts of the types.
        """
        chosen = {}
        for stage in self.stages:
            for a in stage.arguments:
                if a.flexible:
                    chosen[a.place, a.index] = a.desc
        if not chosen:
            for t in (*node.inputs, *node.outputs, *node.operands):  # noqa: SIM110  # in half the time
                if t is not None and t.layout is not PLAIN:
                    return False
            return True
        if self.is_slow:
            return False
        for place, types in (("input", node.inputs), ("output", node.outputs), ("operand", node.operands)):
            for index, tensor in enumerate(types):
                desc = chosen.get((place, index))
                plain = tensor is None or tensor.layout is PLAIN
                if not (plain if desc is None else tensor is not None and library().equal(desc, describe(tensor))):
                    return False
        return True

    def config(self, node: TypedNode) -> LayerConfig:
        """The layouts that the primitives take. Raises `Refused` for layouts without a token."""
        found: dict[tuple[str, int], Layout] = {}
        for argument in (a for s in self.stages for a in s.arguments if a.flexible):
            layout = token_of(argument.desc)
            if layout is None:
                raise Refused(Reason.LAYOUT, f"{self.name} takes {argument.place} {argument.index} in a layout without a token")
            found[argument.place, argument.index] = layout

        def side(place: str, types: Sequence[TensorType | None]) -> tuple[Layout, ...]:
            layouts = [found.get((place, index), PLAIN) for index in range(len(types))]
            return tuple([layout if t is None else in_rank(layout, t.rank) for layout, t in zip(layouts, types, strict=True)])

        return LayerConfig(side("input", node.inputs), side("output", node.outputs), side("operand", node.operands))


@dataclass(frozen=True, slots=True)
class AcceptedPlan(Accepted):
    """A kernel runs a node of plain types by `plan`, whose layouts are for the primitives to choose."""

    plan: NodePlan = NodePlan(())


class OnednnKernel(Kernel):
    """One way to run a node. Without state: one object serves all nodes, requests and threads."""

    from_operator: ClassVar[bool] = False
    stops_nan: ClassVar[bool] = False
    """Whether `safety`, where the kernel is guarded, denies all data with NaN in input 0. One that runs in Python computes such
    data by what `Values.refused` gives.
    """

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts in which the kernel takes a node that it accepted, the best first."""
        return (LayerConfig.uniform(node, PLAIN),)

    def reservation(self, node: TypedNode) -> Refusal | None:
        """Why the kernel does not take a node in some configurations, although it does in others."""
        return None

    def takes_again(self, node: TypedNode) -> bool:
        """Whether the kernel takes a node that it took in other sizes, as far as that shows without its primitives."""
        return isinstance(self.supports(node), Accepted)

    def divides(self, node: TypedNode) -> bool:
        """Whether primitives that run parts of the batch, the first dimension, one after another give the same bits."""
        return False

    def barriers(self, node: TypedNode) -> int:
        """How often threads that share the node wait for each other: once for each step of a recurrence."""
        return 1

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        """The operator to put in place of the node's, a view, where the node moves nothing in the layouts of its types."""
        return None

    def in_place(self, node: TypedNode) -> Sequence[str]:
        """The values in whose memory output 0 may be written, if no later node reads them."""
        return ()

    def continued(self, node: TypedNode) -> Mapping[str, str]:
        """The outputs that may be written in the memory of an input, with these inputs: for states of a request.

        The node may run twice in a run (see `OnednnRequest`), and must give the same when it has written them already.
        """
        return {}

    def types_in_memory(self, node: TypedNode) -> Mapping[str, TensorType]:
        """The values for which the kernel needs more memory than their types take, each with a type of that size."""
        return {}

    def is_guarded(self, node: TypedNode) -> bool:
        """Whether references have to run instead for some data; `safety` checks it."""
        return False

    def safety(self, node: TypedNode, array: Callable[[str], NDArray[Any]], stream: Stream) -> Callable[[], bool]:
        """A call that returns whether a guarded kernel is right for the current data. `array` gives a value in its layout.

        The default checks that input 0 holds neither NaN nor plus infinity.
        """
        return holds_no_nan_or(array(node.node.inputs[0]), stream)

    def otherwise(
        self,
        node: TypedNode,
        array: Callable[[str], NDArray[Any]],
        unread: Collection[str],
        calls: Sequence[Callable[[], int]],
        reference: Callable[[], int | None],
    ) -> Callable[[], int | None]:
        """A call that computes the node where `safety` denies; the default is `reference`.

        `calls` run the primitives, `unread` are the outputs that nothing reads.
        """
        return reference


class PrimitiveKernel(OnednnKernel):
    """Runs a node by oneDNN's primitives. Data of the types in `dtypes` only, nothing empty."""

    name = "onednn"
    parameters: ClassVar[tuple[int, ...]] = ()
    """Inputs that no primitive reads, such as axes."""
    dtypes: ClassVar[frozenset[DType]] = frozenset({DType.FLOAT32})
    """The data types that the primitives take, in any mixture for which oneDNN has an implementation."""
    overwrites: ClassVar[bool] = False
    """True when output 0 may be written into the memory of input 0."""

    @abstractmethod
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        """How the node runs. Raises `Refused`, or `Unimplemented` when oneDNN has nothing for it.

        `free`: memory layouts are for the primitive to choose; else they are those of the node's types. `shared`: the first
        operand that is as large as the result shares its memory.
        """

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        found = self._attempt(node, self._checked)
        return found if isinstance(found, Refusal) else AcceptedPlan(self.label(found.name, node), False, found)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found = self._attempt(node, lambda n: self.plan(n, True, False).config(n))
        return (LayerConfig.uniform(node, PLAIN) if isinstance(found, Refusal) else found,)

    def final(self, node: TypedNode, shared: bool, found: NodePlan | None = None) -> NodePlan:
        """How the node runs in the layouts of its types; `found` is that by which `supports` accepted it. Raises as `plan`."""
        return found if found is not None and not shared and found.is_in(node) else self.plan(node, False, shared)

    def with_spare_rows(self, node: TypedNode) -> TypedNode | None:
        """The node with more rows of its values, for which one primitive serves several sizes: see `spare_rows`; None without."""
        return None

    def in_place(self, node: TypedNode) -> Sequence[str]:
        if self.overwrites and node.inputs[0] == node.outputs[0]:
            return node.node.inputs[:1]
        if not any(_is_sum(p) and operand == node.outputs[0] for p, operand in _operands(node)):
            return ()
        found = self._attempt(node, lambda n: self.plan(n, False, True))
        if isinstance(found, Refusal) or found.shared is None:
            return ()
        if "ref" in found.name or "gemm" in found.name:
            apart = self._attempt(node, lambda n: self.plan(n, False, False))
            if not isinstance(apart, Refusal) and apart.name != found.name:
                return ()
        return (node.node.operands[found.shared],)

    def takes_again(self, node: TypedNode) -> bool:
        return not isinstance(self._attempt(node, self._require), Refusal)

    def label(self, name: str, node: TypedNode) -> str:
        """The name of an implementation in reports: not all names of oneDNN include the data type."""
        tensors = (*node.inputs, *node.outputs)
        for t in tensors:
            if t is not None and t.dtype is not DType.FLOAT32:
                break
        else:  # mostly
            return name
        dtypes = {t.dtype for t in tensors if t is not None}
        if DType.BFLOAT16 in dtypes and "bf16" not in name:
            return f"{name} bf16"
        return f"{name} int8" if dtypes & {DType.INT8, DType.UINT8} and "int8" not in name else name

    def _checked(self, node: TypedNode) -> NodePlan:
        """The plan, if it is worth it: not by a slow implementation, nor by a slower one because of the post-ops."""
        self._require(node)
        found = self.plan(node, True, False)
        if found.is_reference:
            raise Refused(Reason.POST_OP if node.post_ops else Reason.OPERATOR, "oneDNN has only its slow reference for it")
        if node.post_ops and "gemm" in found.name:
            bare = self.plan(replace(node, node=replace(node.node, post_ops=()), operands=()), True, False)
            if "gemm" not in bare.name:
                raise Refused(Reason.POST_OP, f"only {found.name} takes the chain, not {bare.name}")
        return found

    def _require(self, node: TypedNode) -> None:
        require_data(node, self.dtypes, self.parameters)
        if has_clip(node) and not stays_finite(node):
            raise Refused(Reason.POST_OP, "oneDNN's clip loses NaN, and what comes before it may make NaN of any numbers")

    def _attempt(self, node: TypedNode, ask: Callable[[TypedNode], Any]) -> Any:
        try:
            return ask(node)
        except Refused as answer:
            return answer.refusal
        except Unimplemented as error:
            return Refusal(Reason.POST_OP if node.post_ops else Reason.OPERATOR, str(error))


def _operands(node: TypedNode) -> Iterator[tuple[PostOp, TensorType]]:
    return zip((p for p in node.post_ops if not isinstance(p, Eltwise)), node.operands, strict=True)


def _is_sum(post_op: PostOp) -> bool:
    return isinstance(post_op, Sum) or (isinstance(post_op, Binary) and post_op.algorithm == "add")


LOW = frozenset({DType.FLOAT32, DType.BFLOAT16})
"""The data types of kernels that compute with bfloat16 too."""


def require_data(node: TypedNode, dtypes: frozenset[DType], parameters: Sequence[int] = ()) -> None:
    """Raise `Refused` unless everything that the node touches, parameters left aside, is of the types and has elements."""
    inputs = [t for index, t in enumerate(node.inputs) if index not in parameters] if parameters else node.inputs
    for tensor in (*inputs, *node.outputs, *node.operands):
        if tensor is None:
            continue
        if tensor.dtype not in dtypes:
            raise Refused(Reason.DTYPE, f"{tensor.dtype}; accepted: {', '.join(sorted(d.value for d in dtypes))}")
        if tensor.dtype is DType.BFLOAT16 and not library().has_bfloat16:
            raise Refused(Reason.CAPABILITY, "this CPU has no instructions for bfloat16")
        if 0 in tensor.dims:
            raise Refused(Reason.SHAPE, "no elements")
    if len(node.outputs) != 1 or not node.node.outputs[0]:
        raise Refused(Reason.OPERATOR, "more than one output")


def is_constant(node: TypedNode, index: int) -> bool:
    """Whether the content of an input is known while planning."""
    return node.given(index).value is not None


def value_of(array: NDArray[Any] | None) -> NDArray[Any]:
    """The content of a constant."""
    assert array is not None
    return array


def value_argument(arg: int, value: NDArray[Any]) -> Argument:
    """A few numbers that a primitive reads, kept with it."""
    desc = plain(value.shape, number_of(DType.of(value.dtype)))
    return Argument(arg, "value", 0, desc, value=value)


class AnyLayoutKernel(PrimitiveKernel):
    """A kernel that takes the data in any layout for which oneDNN has a fast implementation."""

    data: ClassVar[int | None] = 1
    """How many of the first inputs are data; the rest are parameters, which are plain. None: all."""

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        found = super().supports(node)
        if isinstance(found, Accepted):
            return found
        way = next((plan for _, plan in self._ways(node)), None)
        return found if way is None else Accepted(self.label(way.name, node))

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        found: list[LayerConfig] = []
        for layout in tokens(node.outputs[0].rank) if len(node.outputs) == 1 else ():
            config = self._config(node, layout)
            ask = partial(self._attempt, relaid(node, config), self._checked)
            if found:
                found.append(when_asked(node, config, ask))
            elif isinstance(ask(), NodePlan):
                found.append(config)
        return found

    def _ways(self, node: TypedNode) -> Iterator[tuple[LayerConfig, NodePlan]]:
        """The configurations for which there is a fast implementation, plain first, and what runs in each."""
        for layout in tokens(node.outputs[0].rank) if len(node.outputs) == 1 else ():
            config = self._config(node, layout)
            found = self._attempt(relaid(node, config), self._checked)
            if isinstance(found, NodePlan):
                yield config, found

    def _config(self, node: TypedNode, layout: Layout) -> LayerConfig:
        count = len(node.inputs) if self.data is None else self.data
        inputs = tuple(layout if index < count else PLAIN for index in range(len(node.inputs)))
        result = node.outputs[0].dims
        operands = tuple(layout if operand.dims == result else PLAIN for operand in node.operands)
        return LayerConfig(inputs, (layout,), operands)


def when_asked(node: TypedNode, config: LayerConfig, ask: Callable[[], Any]) -> LayerConfig:
    """The configuration, which holds unless `ask` returns a refusal: the layout pass asks about the few that it chooses."""
    threads = library().planned_threads

    def holds() -> bool:
        library().plan_threads(threads)
        with naming_out_of_memory(node.node):
            return not isinstance(ask(), Refusal)

    return LayerConfig(config.inputs, config.outputs, config.operands, config.cost, holds)


def relaid(node: TypedNode, config: LayerConfig) -> TypedNode:
    """The node with its types in the layouts of a configuration."""
    inputs = tuple(t and t.with_layout(layout) for t, layout in zip(node.inputs, config.inputs, strict=True))
    outputs = tuple(t.with_layout(layout) for t, layout in zip(node.outputs, config.outputs, strict=True))
    operands = tuple(t.with_layout(layout) for t, layout in zip(node.operands, config.operands, strict=True))
    return TypedNode(node.node, inputs, outputs, operands)
