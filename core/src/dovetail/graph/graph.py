"""Operators as graphs, passes and devices see them; nodes and graphs: immutable, a pass builds new ones."""

import dataclasses
import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.errors import OperatorError, UnknownOperator
from dovetail.graph.post_ops import Eltwise, PostOp
from dovetail.graph.types import TensorType
from dovetail.html_table import html_table
from dovetail.locks import cached_property
from dovetail.names import free_name, operator_key, printable, some
from dovetail.protocol import Protocol

__all__ = [
    "AbstractOperator",
    "Graph",
    "Iterations",
    "KernelSource",
    "Magnitude",
    "Node",
    "Port",
    "RunGraph",
    "TypesOf",
    "UnboundOperator",
]

Types = Sequence[TensorType | None]
"""The types of a node's inputs, None for those left out."""


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output: its name, whether it may be left out or repeated, and its type variable or data type name."""

    name: str
    optional: bool = False
    variadic: bool = False
    type: str = ""


@dataclass(frozen=True)  # without slots, so that a subclass need not be a dataclass
class KernelSource:
    """Base of the kernels that an operator class provides; by `language` devices know whether they can run one."""

    language: ClassVar[str] = ""


Magnitude = Literal["", "sum", "product", "quotient", "sum_of_products", "sum_of_integers"]
"""A bound of the absolute values of results. `sum`: the sum of those of all inputs. `product`: their product. `quotient`:
that of input 0 divided by input 1. `sum_of_products`: that of input 0 times that of input 1, added up over the elements of input
1, plus those of the other inputs (times `alpha` and `beta`, if the operator has them). `sum_of_integers`: 2^31 times those of the
floating-point inputs, because the sums of the others are int32."""


@functools.cache  # each plan asks several times for each node
def _package_of(module: str | None) -> str:
    return (module or "").partition(".")[0]  # None for a class that exec made


class AbstractOperator:
    """An operator with its attributes set, as graphs, passes and devices see it.

    `dovetail.op.Operator` is the base class for authors. Operators that no author writes (a node that a frontend only named, a
    node that the user gave a device a kernel for) implement this class directly. Instances are immutable.
    """

    # Read-only to type checkers, so that subclasses may override them with class variables as well as with fields of instances.
    if TYPE_CHECKING:

        @property
        def domain(self) -> str:
            """ONNX domain; `""` is `ai.onnx`."""

        @property
        def op_type(self) -> str:
            """The name in models."""

        @property
        def since(self) -> int:
            """The first version of the domain's operator set for which this definition holds."""

        @property
        def stem(self) -> str:
            """The file name of everything that belongs to the operator: kernels, cases, OpenCL sources."""

        @property
        def inputs(self) -> tuple[Any, ...]:
            """The input ports (`Port`)."""

        @property
        def outputs(self) -> tuple[Any, ...]:
            """The output ports (`Port`)."""

        @property
        def attributes(self) -> Mapping[str, Any]:
            """The names of the attributes, which are attributes of the instance, with their specifications."""

        @property
        def kernels(self) -> tuple[KernelSource, ...]:
            """The kernels that the operator itself provides, each kind in the order in which they are tried."""

        @property
        def is_view(self) -> bool:
            """True when output 0 holds exactly the bytes of input 0 under another shape: devices move nothing."""

        @property
        def in_place(self) -> bool:
            """True when output 0 may be written into the memory of an input of the same type, element by element."""

        @property
        def is_random(self) -> bool:
            """True when two runs may differ: never folded."""

        @property
        def propagates_nan(self) -> bool:
            """True when a result is NaN wherever any number that it is computed from is."""

        @property
        def magnitude(self) -> Magnitude:
            """How large results can become in terms of the inputs; `""` where nothing is known."""

    else:
        domain = op_type = ""
        since = 1
        stem = "operator"
        inputs = (Port("inputs", variadic=True),)
        outputs = (Port("outputs", variadic=True),)
        attributes = MappingProxyType({})
        kernels = ()
        is_view = in_place = is_random = propagates_nan = False
        magnitude = ""

    @property
    def package(self) -> str:
        """The top-level package that defines the operator: `acme_ops`. Devices find kernels by package and stem."""
        return _package_of(type(self).__module__)

    @property
    def key(self) -> str:
        """`Conv`, or `tim.vx::HSwish` outside the standard domain."""
        return operator_key(self.domain, self.op_type)

    @property
    def named_subgraphs(self) -> "Mapping[str, Graph]":
        """The attributes that are graphs, by name."""
        return {}

    @property
    def subgraphs(self) -> "tuple[Graph, ...]":
        """The attributes that are graphs."""
        return tuple(self.named_subgraphs.values())

    def replace(self, **values: Any) -> Self:
        """The operator with some attributes changed."""
        return type(self)(**{**{name: getattr(self, name) for name in self.attributes}, **values})

    def infer(self, *inputs: Any, **_: Any) -> Any:
        """Output types from input types: one `TensorType`, or a tuple for several outputs. See `dovetail.op.Operator.infer`."""
        raise OperatorError(f"{self.key} infers no types")

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """Compute the outputs in NumPy: one array, or a tuple for several. See `dovetail.op.Operator.reference`."""
        raise UnknownOperator(f"{self.key} has no NumPy reference")

    def compose(self, g: Any, *inputs: Any, **_: Any) -> Any:
        """Build this operator from others: add nodes to the `GraphBuilder` `g` and return the output name or a tuple of names.

        `inputs` are value names, `""` for those left out; `g.type_of(name)` gives their types. Expanded before planning,
        unless the device has a kernel of its own for this operator.
        """
        raise UnknownOperator(f"{self.key} has no composition", hint="define compose()")

    def compose_in(self, g: Any, graph: "Graph", node: "Node") -> Any:
        """Build this operator from others and from the graph around it: add nodes to `g`, return one output name or a tuple.

        For operators whose attributes name values of the graph, as ONNX's Gradient does. `graph` is the one that contains
        `node`, bound and typed (sub-graphs are not), with nothing folded, merged or left out yet; nodes of `g` may read any of
        its values that does not depend on `node`. `g.type_of` also knows what was added to `g`. `None` in place of the outputs
        asks to be called again when other nodes of this kind have been expanded. Always expanded, before all else: no device
        sees the operator.
        """
        raise UnknownOperator(f"{self.key} has no composition in its graph", hint="define compose_in()")

    def control(self, run: "RunGraph", *inputs: Any) -> Any:
        """Compute the outputs by running sub-graphs: control flow. Returns one value, or a tuple, as `reference` does.

        `run(graph, arguments)` runs one of `self.subgraphs` on values for its inputs and returns its outputs as a list; what the
        sub-graph reads from outside is provided. `run.wanted` says which outputs of the node have a name; others may be None.
        Values are arrays, lists of arrays (sequences), or None (absent optionals). Called while a model runs, on the host; nodes
        with this method are never folded and never given to a device.
        """
        raise OperatorError(f"{self.key} runs no sub-graphs")

    def control_types(self, types: "TypesOf", *inputs: TensorType | None) -> Sequence[TensorType | None]:
        """The types of what `control` gives, None or with open sizes where only a run shows them; `types` gives a sub-graph's."""
        return ()

    def check_outputs(self, count: int) -> None:
        """Raise `OperatorError` unless the sub-graphs give values for `count` outputs. Called when a node is bound.

        The default accepts every count: for operators that do not define this, the results of `control` are checked.
        """

    def chosen_graph(self, inputs: Sequence[NDArray[Any] | None]) -> "Graph | None":
        """The sub-graph that replaces the node where known inputs select it; None by default.

        `inputs` has the arrays of constants, in iterations of all inputs, None for others. The sub-graph takes no inputs.
        """
        return None

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> tuple[PostOp, ...] | None:
        """This operator as a chain of post-ops over its input `chained`; None when it is not one.

        `types` and `names` are those of the inputs. Other inputs may be read through `Binary(algorithm, name)`.
        """
        return None

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True when output 0 equals input 0 for these types, so that the node can be left out. Default: views of equal shape."""
        return self.is_view and inputs[0] == outputs[0]

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """Floating-point operations of one run, a multiply-add counted as two. Default: one for each output element."""
        return outputs[0].size if len(outputs) == 1 else sum([t.size for t in outputs])

    def check(self, inputs: Types, outputs: int) -> None:
        """Check the input count and data types against the ports. Raises `OperatorError`."""

    def check_inferred(self, inputs: Types, outputs: Sequence[TensorType]) -> None:
        """Check the data types that `infer` gives against the ports. Raises `OperatorError`."""

    def describe(self) -> str:
        """The attributes in words."""
        return ""

    @classmethod
    def has_reference(cls) -> bool:
        """True when the class defines `reference`."""
        return cls.reference is not AbstractOperator.reference

    @classmethod
    def has_composition(cls) -> bool:
        """True when the class defines `compose`."""
        return cls.compose is not AbstractOperator.compose

    @classmethod
    def has_compose_in(cls) -> bool:
        """True when the class defines `compose_in`."""
        return cls.compose_in is not AbstractOperator.compose_in

    @classmethod
    def has_control(cls) -> bool:
        """True when the class defines `control`."""
        return cls.control is not AbstractOperator.control


TypesOf = Callable[["Graph", Sequence[TensorType | None]], Sequence[TensorType | None]]
"""The types of the outputs of a sub-graph for such arguments."""


class RunGraph(Protocol):
    """Runs a sub-graph on values for its inputs; returns its outputs. See `AbstractOperator.control`."""

    @property
    def wanted(self) -> Sequence[bool]:
        """For each output port of the operator, or output of a variadic one: whether the graph has a name for it. Others may be
        None."""

    def __call__(self, graph: "Graph", arguments: Sequence[Any]) -> list[Any]:
        """The outputs of `graph`."""

    def types(self, graph: "Graph", arguments: Sequence[Any]) -> Sequence[TensorType | None]:
        """The types of the outputs of `graph` as inferred for such arguments, without a run of it.

        A shape may be open where it depends on data; None where no type can be inferred.
        """

    def iterations(
        self,
        graph: "Graph",
        fixed: Sequence[Any],
        state: Sequence[Any],
        scanned: Sequence[NDArray[Any]],
        stacked: Sequence[bool],
        most: int | None,
    ) -> "Iterations | None":
        """Repeated runs of `graph` in a device's memory, which save most of what a small iteration costs.

        The graph takes `fixed` arrays, which the caller may write into between iterations, the `state`, and a slice of each of
        the `scanned` arrays along axis 0. Its last outputs are the next state, and values to stack; `stacked` says which of
        these are wanted, `most` how many iterations may follow. Until the last one the caller makes no other run of `graph`.
        None where types change, or a device cannot run them so: then the caller makes each run itself.
        """


class Iterations(Protocol):
    """See `RunGraph.iterations`."""

    @property
    def outputs(self) -> Sequence[NDArray[Any]]:
        """All outputs of the latest iteration, which the next one overwrites."""

    def __call__(self) -> None:
        """Run one iteration."""

    def results(self) -> tuple[list[Any], list[NDArray[Any] | None]]:
        """The state after the latest iteration, and the stacked values along a new axis 0; None for those that are not wanted."""


@dataclass(frozen=True, slots=True, eq=False)
class UnboundOperator(AbstractOperator):
    """An operator as a frontend read it: named, with raw attributes, not yet looked up. `passes.bind` replaces it.

    `raw` has the attributes by name: numbers, text, lists of these, arrays, and sub-graphs (`Graph`).

    `version` is the version of the domain's operator set that the model imports.
    """

    domain: str = field()
    op_type: str = field()
    version: int = field()
    raw: Mapping[str, Any] = field()

    @cached_property
    def named_subgraphs(self) -> "Mapping[str, Graph]":
        """The raw attributes that are graphs, by name."""
        return {name: value for name, value in self.raw.items() if isinstance(value, Graph)}

    def describe(self) -> str:
        """The raw attribute names."""
        return ", ".join(self.raw)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """One application of an operator. Values are named by strings; `""` is an optional input or output left out.

    `origins` are the names of the model's nodes that this one represents, including its own; reports use it. `affinity` names
    the device that is to run a node of a model; passes need not keep it.
    """

    name: str
    op: AbstractOperator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    post_ops: tuple[PostOp, ...] = ()
    origins: tuple[str, ...] = ()
    affinity: str = ""
    # Asked hundreds and thousands of times for each plan.
    _operands: tuple[str, ...] | None = field(default=None, init=False)
    _reads: tuple[str, ...] | None = field(default=None, init=False)

    @property
    def operands(self) -> tuple[str, ...]:
        """The values that post-ops read, in chain order."""
        found = self._operands
        if found is None:
            found = tuple([p.operand for p in self.post_ops if not isinstance(p, Eltwise)])
            object.__setattr__(self, "_operands", found)
        return found

    @property
    def reads(self) -> tuple[str, ...]:
        """Every value this node depends on: present inputs, post-op operands, and what its sub-graphs take from outside."""
        found = self._reads
        if found is None:
            found = tuple(filter(None, self.inputs)) if "" in self.inputs else self.inputs
            if self.post_ops or self.op.subgraphs:
                found = (*found, *self.operands, *[name for graph in self.op.subgraphs for name in graph.captures])
            object.__setattr__(self, "_reads", found)
        return found

    @property
    def writes(self) -> tuple[str, ...]:
        """The outputs that are present."""
        return tuple(filter(None, self.outputs)) if "" in self.outputs else self.outputs

    def __str__(self) -> str:
        return f"'{printable(self.name)}' ({printable(self.op.key)})"

    def __repr__(self) -> str:
        chain = "".join(f" + {getattr(p, 'algorithm', p.kind)}" for p in self.post_ops)
        return f"<Node {self}{chain}: {some(self.inputs)} -> {some(self.outputs)}>"


@dataclass(frozen=True, eq=False, repr=False)
class Graph:
    """Nodes with the values between them.

    `types` holds declared or inferred types; every input and constant has one. `constants` are read-only arrays. `states` are
    the inputs that a request keeps from run to run, each with the index of the output that is its next content: a device may
    write that output into the array that it is given for the input, and return this array. Nothing else is ever written.
    Nodes may be in any order until `passes.schedule` has sorted them.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    types: Mapping[str, TensorType] = field(default_factory=dict)
    name: str = "graph"
    states: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<Graph {printable(self.name)}: {self.summary}>"

    @property
    def summary(self) -> str:
        """`3 nodes (2 Conv, Relu), x: float32[N, 3] -> y`: the most frequent operators, and the first inputs and outputs."""
        counts = Counter(node.op.key for node in self.nodes)
        operators = some(key if number == 1 else f"{number} {key}" for key, number in counts.most_common())
        inputs = some(f"{name}: {self.types[name]}" if name in self.types else name for name in self.inputs)
        nodes = f"{len(self.nodes)} nodes ({operators})" if self.nodes else "no nodes"
        return f"{nodes}, {inputs or 'no inputs'} -> {some(self.outputs) or 'no outputs'}"

    def _repr_html_(self) -> str:
        rows = ((node.name, node.op.key, some(node.inputs), some(node.outputs)) for node in self.nodes)
        return html_table(f"{self.name}: {self.summary}", ("node", "operator", "inputs", "outputs"), rows)

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # without the cached maps

    def replace(self, **changes: Any) -> "Graph":
        """A copy with some fields changed."""
        return dataclasses.replace(self, **changes)

    @cached_property
    def producers(self) -> Mapping[str, Node]:
        """Value name -> the node that writes it."""
        return MappingProxyType({name: node for node in self.nodes for name in node.writes})

    @cached_property
    def consumers(self) -> Mapping[str, tuple[Node, ...]]:
        """Value name -> the nodes that read it, each once, in node order. Graph outputs do not count."""
        found: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(node.reads):
                found.setdefault(name, []).append(node)
        return MappingProxyType({name: tuple(nodes) for name, nodes in found.items()})

    @cached_property
    def node_names(self) -> frozenset[str]:
        """The names of its nodes, to ask whether one is taken."""
        return frozenset([node.name for node in self.nodes])

    def free_name(self, base: str) -> str:
        """`base`, or the first of `base_1`, ... that nothing in the graph has, for what a pass adds. Other bases differ."""
        return free_name(base, self._is_taken)

    def _is_taken(self, name: str) -> bool:
        is_value = name in self.types or name in self.constants or name in self.producers or name in self.inputs
        return is_value or name in self.node_names

    @cached_property
    def is_in_order(self) -> bool:
        """Whether every value is written before it is read, and every output is defined."""
        known = {*self.inputs, *self.constants}
        for node in self.nodes:
            if not known.issuperset(node.reads):
                return False
            known.update(node.writes)
        return known.issuperset(self.outputs)

    @cached_property
    def op_types(self) -> frozenset[str]:
        """The names of the operators of its nodes, by which most passes know that they have nothing to do."""
        return frozenset([node.op.op_type for node in self.nodes])

    @cached_property
    def op_classes(self) -> frozenset[type[AbstractOperator]]:
        """The classes of these operators."""
        return frozenset([type(node.op) for node in self.nodes])

    @cached_property
    def output_names(self) -> frozenset[str]:
        """The outputs, to ask whether a value is among them."""
        return frozenset(self.outputs)

    @cached_property
    def open_names(self) -> tuple[str, ...]:
        """The values whose types are not static."""
        return tuple([name for name, t in self.types.items() if not t.is_static])

    @cached_property
    def captures(self) -> tuple[str, ...]:
        """The values that a sub-graph reads from the graph around it, in order of first use."""
        own = {*self.inputs, *self.constants, *self.producers}
        wanted = [*(name for node in self.nodes for name in node.reads), *self.outputs]
        return tuple(dict.fromkeys(name for name in wanted if name not in own))

    def type_of(self, name: str) -> TensorType | None:
        """The type of a value, with the content of a constant; None for `""`. Raises `KeyError` when it is not known."""
        return self.types[name] if name else None
