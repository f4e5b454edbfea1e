"""All that an operator author imports.

An operator is one class. Annotated class variables are its attributes; `inputs` and `outputs` describe its ports; `infer`
gives the output types; `reference` computes in NumPy. From these it runs on every device. An OpenCL kernel (`kernels`) or a
composition of other operators (`compose`) makes it fast::

    class HardSwish6(Operator):
        domain = "com.acme"
        inputs = ("X: T",)
        outputs = ("Y: T",)
        types = {"T": FLOATS}
        scale: float = 1.0

        def reference(self, X):
            return self.scale * X * np.clip(X / 6 + 0.5, 0, 1)
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, dataclass_transform

from dovetail._attributes import AttributeSpec, attribute_specs, check_construction, read_attributes
from dovetail._decorator import operator
from dovetail._host_kernel import HostConfig, HostKernel, KernelRefused, PortConfig
from dovetail._kernel_sources import KernelSource, OpenCLKernel
from dovetail._names import stem_of
from dovetail._ports import FLOATS, INTEGERS, NUMERIC, Port, check_ports, parse_ports
from dovetail._translation import Translation
from dovetail.errors import OperatorError, ShapeError, UnknownOperator
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.layout import ANY, BFYX, BYXF, FYXB, NHWC, PLAIN, YXFB, Layout
from dovetail.graph.model import Graph, Node
from dovetail.graph.post_ops import Binary, Eltwise, PostOp
from dovetail.graph.types import Dim, MapType, OptionalType, SequenceType, Shape, TensorType

if TYPE_CHECKING:
    import numpy as np

    from dovetail.testing.case import Case

__all__ = [
    "ANY",
    "BFYX",
    "BYXF",
    "FLOATS",
    "FYXB",
    "INTEGERS",
    "NHWC",
    "NUMERIC",
    "PLAIN",
    "YXFB",
    "Binary",
    "DType",
    "Dim",
    "Eltwise",
    "Graph",
    "GraphBuilder",
    "HostConfig",
    "HostKernel",
    "KernelRefused",
    "KernelSource",
    "Layout",
    "MapType",
    "OpenCLKernel",
    "Operator",
    "OperatorError",
    "OptionalType",
    "Port",
    "PortConfig",
    "PostOp",
    "RunGraph",
    "SequenceType",
    "Shape",
    "ShapeError",
    "TensorType",
    "Translation",
    "UnboundOperator",
    "operator",
]

RunGraph = Callable[[Graph, Sequence[Any]], list[Any]]
"""Runs a sub-graph on values for its inputs; returns its outputs. See `Operator.control`."""

_DOMAIN = re.compile(r"[A-Za-z0-9_.\-]*")


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
class Operator:
    """Base of all operators. A subclass is a frozen dataclass of its attributes; an instance is the operator with them set.

    Attribute types: `int`, `float`, `str`, `bool`, `DType`, `tuple[int, ...]`, `tuple[float, ...]`, `tuple[str, ...]`,
    `NDArray`, `Graph`, each of them `| None` for "may be left out". An attribute without a default is required.
    Values are read as their types (a list becomes a tuple, a NumPy number a plain one); what is missing, unknown or of another
    type raises `OperatorError`. Check the rest in `__post_init__` and raise the same; node and file are added on the way out.
    """

    domain: ClassVar[str] = ""
    """ONNX domain; `""` is `ai.onnx`."""
    op_type: ClassVar[str] = ""
    """The name in models. Default: the class name without a trailing `_<version>`."""
    since: ClassVar[int] = 1
    """The first version of the domain's operator set for which this class holds, up to the next class of the same name."""
    inputs: ClassVar[tuple[Any, ...]] = ("X",)
    """Ports such as `"X: T"`, `"B?: T"` (optional), `"inputs*: T"` (variadic, last). Parsed to `Port` objects."""
    outputs: ClassVar[tuple[Any, ...]] = ("Y",)
    """Ports in the same grammar."""
    types: ClassVar[Mapping[str, frozenset[DType]]] = {}
    """The data types that each type variable may take; ports with the same variable must agree."""
    legacy_attributes: ClassVar[Mapping[str, str]] = {}
    """Attributes of older versions that are inputs now: attribute name -> input name. They become constant inputs."""
    output_count: ClassVar[str] = ""
    """The attribute that takes the number of a node's outputs when a model leaves it out, for operators that depend on it."""
    is_view: ClassVar[bool] = False
    """True when output 0 holds exactly the bytes of input 0 under another shape: devices move nothing."""
    in_place: ClassVar[bool] = False
    """True when output 0 may be written into the memory of an input of the same type, element by element."""
    is_random: ClassVar[bool] = False
    """True when two runs may differ: never folded."""
    kernels: ClassVar[tuple[KernelSource, ...]] = ()
    """Kernels that the class brings along: `OpenCLKernel`s and `HostKernel`s, each sort in the order in which they are tried."""

    translations: ClassVar[tuple[Translation, ...]] = ()
    """Other names under which model formats write this operator."""

    stem: ClassVar[str] = "operator"
    attributes: ClassVar[Mapping[str, AttributeSpec]] = {}
    _graphs: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[tuple[str, ...]] = ()
    _assign: ClassVar[Callable[..., None]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "op_type" not in cls.__dict__:
            cls.op_type = re.sub(r"_\d+$", "", cls.__name__)
        if not _DOMAIN.fullmatch(cls.domain):
            raise OperatorError(
                f"operator {cls.__qualname__}: the domain {cls.domain!r} has characters other than letters, digits, . _ -"
            )
        cls.stem = stem_of(cls.op_type)
        _drop_what_described_another_reference(cls)
        cls.inputs = parse_ports(cls, "inputs")
        cls.outputs = parse_ports(cls, "outputs")
        own_constructor = "__init__" in cls.__dict__
        dataclasses.dataclass(frozen=True, kw_only=True, eq=False)(cls)
        cls.attributes = attribute_specs(cls)
        cls._required = tuple(name for name, spec in cls.attributes.items() if spec.required)
        if not own_constructor:
            check_construction(cls)
        cls._graphs = tuple(name for name, spec in cls.attributes.items() if spec.type_name == "Graph")

    # --- what an author writes -------------------------------------------------------------------------------------

    def infer(self, *inputs: Any, **_: Any) -> Any:
        """Output types from input types: one `TensorType`, or a tuple for several outputs.

        Shapes are numbers when this is called; inputs that are left out are None; `TensorType.value` has the content of
        inputs that are known while planning. Raise `ShapeError` for shapes that do not fit. The default gives every
        output the type of the first input, which is right for elementwise operators of one input.
        """
        return tuple(inputs[0].with_shape(inputs[0].shape) for _ in self.outputs)

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """Compute the outputs in NumPy: one array, or a tuple for several. Inputs left out are None; never write to inputs.

        The default runs the composition, if there is one, by the references of its operators.
        """
        if not self.has_composition():
            raise UnknownOperator(f"{self.key} has neither a NumPy reference nor a composition", hint="define reference()")
        from dovetail.passes.decompose import evaluate_composition  # here, because the passes are built upon this module

        return evaluate_composition(self, inputs)

    def compose(self, g: GraphBuilder, *inputs: Any, **_: Any) -> Any:
        """Build this operator from others: add nodes to `g` and return the output name or a tuple of names.

        `inputs` are value names, `""` for those left out; `g.type_of(name)` gives their types. Expanded before planning,
        unless the device has a kernel of its own for this operator.
        """
        raise UnknownOperator(f"{self.key} has no composition", hint="define compose()")

    def compose_in(self, g: GraphBuilder, graph: Graph, node: Node) -> Any:
        """Build this operator from others and from the graph around it: add nodes to `g`, return one output name or a tuple.

        For operators whose attributes name values of the graph, as ONNX's Gradient does. `graph` is the one in which `node`
        stands, bound and typed (sub-graphs are not), with nothing folded, merged or left out yet; nodes of `g` may read any of
        its values that does not depend on `node`. `g.type_of` also knows what was added to `g`. `None` in place of the outputs
        asks to be called again when other nodes of this sort have been expanded. Always expanded, before all else: no device
        sees the operator.
        """
        raise UnknownOperator(f"{self.key} has no composition in its graph", hint="define compose_in()")

    def control(self, run: RunGraph, *inputs: Any) -> Any:
        """Compute the outputs by running sub-graphs: control flow. Returns one value, or a tuple, as `reference` does.

        `run(graph, arguments)` runs one of `self.subgraphs` on values for its inputs and returns its outputs as a list; what the
        sub-graph reads from outside is provided. Values are arrays, lists of arrays (sequences), or None (absent optionals).
        Called while a model runs, on the host; nodes with this method are never folded and never given to a device.
        """
        raise OperatorError(f"{self.key} runs no sub-graphs")

    def post_ops(self, types: Sequence[TensorType | None], names: Sequence[str], chained: int) -> tuple[PostOp, ...] | None:
        """This operator as a chain of post-ops over its input `chained`; None when it is none.

        `types` and `names` are those of the inputs. Other inputs may be read through `Binary(algorithm, name)`.
        """
        return None

    def is_identity(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> bool:
        """True when output 0 equals input 0 for these types, so that the node can be left out. Default: views of equal shape."""
        return self.is_view and inputs[0] == outputs[0]

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Floating-point operations of one run, a multiply-add counted as two. Default: one for each output element."""
        return sum(t.size for t in outputs)

    @classmethod
    def cases(cls, rng: "np.random.Generator") -> "Iterable[Case]":
        """Test cases (`dovetail.testing.Case`), with random inputs from `rng`; the conformance kit runs them. Default: none.

        Expected outputs come from hand or from a computation of their own, never from `reference`. Every data type for which
        the class has a kernel needs a case. Import `Case` inside this method: it is called by tests only.
        """
        return ()

    # --- what the runtime asks -------------------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """`Conv`, or `tim.vx::HSwish` outside the standard domain."""
        return f"{self.domain}::{self.op_type}" if self.domain else self.op_type

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        """The attributes that are graphs."""
        return tuple(v for name in self._graphs if (v := getattr(self, name)) is not None) if self._graphs else ()

    @classmethod
    def translation(cls, domain: str, op_type: str) -> Translation | None:
        """How nodes of this name become the operator; None for its own name and for names that are not its."""
        return next((t for t in cls.translations if (t.domain, t.op_type) == (domain, op_type)), None)

    @classmethod
    def has_composition(cls) -> bool:
        """True when the class defines `compose`."""
        return cls.compose is not Operator.compose

    @classmethod
    def has_compose_in(cls) -> bool:
        """True when the class defines `compose_in`."""
        return cls.compose_in is not Operator.compose_in

    @classmethod
    def has_reference(cls) -> bool:
        """True when the class defines `reference`."""
        return cls.reference is not Operator.reference

    @classmethod
    def has_control(cls) -> bool:
        """True when the class defines `control`."""
        return cls.control is not Operator.control

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> "Operator":
        """An instance from the attributes of a model file. Raises `OperatorError` for a missing, unknown or mistyped one."""
        made = cls.__new__(cls)
        made._assign(**read_attributes(cls, attributes))
        return made

    @classmethod
    def check(cls, inputs: Sequence[TensorType | None], outputs: int) -> None:
        """Check input count and data types against the ports. Raises `OperatorError`."""
        check_ports(cls, inputs, outputs)

    def describe(self) -> str:
        """The attributes that differ from their defaults, as `kernel_shape=(3, 3), group=2`."""
        shown = []
        for name, spec in self.attributes.items():
            value = getattr(self, name)
            if isinstance(value, Graph):
                shown.append(f"{name}=<graph>")
            elif spec.required or not spec.is_default(value):
                shown.append(f"{name}={str(value) if isinstance(value, DType) else repr(value)}")
        return ", ".join(shown)


def _drop_what_described_another_reference(cls: type[Operator]) -> None:
    """Forget inherited post-ops, compositions and kernels where a subclass of a whole operator gives a reference of its own."""
    inherits_reference = any("reference" in base.__dict__ for base in cls.__mro__[1:] if base is not Operator)
    if "reference" in cls.__dict__ and inherits_reference:
        for name in ("post_ops", "compose", "kernels"):
            if name not in cls.__dict__:
                setattr(cls, name, getattr(Operator, name))


class UnboundOperator(Operator):
    """An operator as a frontend read it: named, with raw attributes, not yet looked up. `passes.bind` replaces it.

    `version` is the version of the domain's operator set that the model imports.
    """

    def __init__(self, domain: str, op_type: str, version: int, raw: Mapping[str, Any]) -> None:
        for name, value in {"domain": domain, "op_type": op_type, "version": version, "raw": raw}.items():
            object.__setattr__(self, name, value)

    if TYPE_CHECKING:
        version: ClassVar[int]
        raw: ClassVar[Mapping[str, Any]]

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        """The raw attributes that are graphs."""
        return tuple(v for v in self.raw.values() if isinstance(v, Graph))

    def describe(self) -> str:
        """The raw attribute names."""
        return ", ".join(self.raw)
