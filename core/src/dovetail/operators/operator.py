"""The base class of operators that authors write."""

import inspect
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, FrozenInstanceError
from typing import Any, ClassVar, Self, dataclass_transform

from dovetail.dataclass import dataclass, fields_of
from dovetail.errors import OperatorError, UnknownOperator
from dovetail.evaluate.composition import evaluate_composition
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Graph, KernelSource, Magnitude
from dovetail.graph.types import TensorType
from dovetail.names import operator_key, stem_of
from dovetail.operators.attributes import AttributeSpec, attribute_specs, read_attributes
from dovetail.operators.ports import DTYPE_NAMES, check_inferred, check_ports, parse_ports
from dovetail.operators.translation import Translation

__all__ = ["Operator"]

_DOMAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_ANNOTATED = frozenset({"__annotations__", "__annotate_func__", "__annotate__"})  # up to and from 3.14


class _Signature:
    """The attributes of a class as the arguments of its constructor."""

    def __get__(self, instance: object, owner: type["Operator"]) -> inspect.Signature:
        given = {name: inspect.Parameter.empty if s.required else s.default for name, s in owner.attributes.items()}
        return inspect.Signature([inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=d) for n, d in given.items()])


@dataclass_transform(frozen_default=True, kw_only_default=True, eq_default=False)
class Operator(AbstractOperator):
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
    propagates_nan: ClassVar[bool] = False
    """True when a result is NaN wherever any number that it is computed from is. Devices fuse more where this is known."""
    magnitude: ClassVar[Magnitude] = ""
    """A bound of the absolute values of results, see `dovetail.graph.graph.Magnitude`. Devices skip checks where it is known."""
    kernels: ClassVar[tuple[KernelSource, ...]] = ()
    """Kernels that the class has: `OpenCLKernel`s and `HostKernel`s, each sort in the order in which they are tried."""

    translations: ClassVar[tuple[Translation, ...]] = ()
    """Other names under which model formats write this operator."""

    stem: ClassVar[str] = "operator"
    key: ClassVar[str] = ""
    attributes: ClassVar[Mapping[str, AttributeSpec]] = {}
    _graphs: ClassVar[tuple[str, ...]] = ()
    _required: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _factories: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    __signature__: ClassVar[Any] = _Signature()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "op_type" not in cls.__dict__:
            name, _, version = cls.__name__.rpartition("_")
            cls.op_type = name if version.isdecimal() and _ else cls.__name__
        for name, kind in (("op_type", str), ("domain", str), ("since", int)):
            if not isinstance(given := getattr(cls, name), kind):
                raise OperatorError(f"operator {cls.__qualname__}: {name} is {given!r:.100}; accepted: {kind.__name__}")
        if not _DOMAIN.issuperset(cls.domain):
            raise OperatorError(
                f"operator {cls.__qualname__}: the domain {cls.domain!r} has characters other than letters, digits, . _ -"
            )
        cls.stem = stem_of(cls.op_type)
        cls.key = operator_key(cls.domain, cls.op_type)
        _drop_what_described_another_reference(cls)
        cls.inputs = parse_ports(cls, "inputs")
        cls.outputs = parse_ports(cls, "outputs")
        kernels: Any = cls.kernels
        if not isinstance(kernels, (tuple, list)):
            given = f"kernels is {reprlib.repr(kernels)}; accepted: a tuple"
            raise OperatorError(f"operator {cls.__qualname__}: {given}", hint="write kernels = (OpenCLKernel(...),)")
        # Most classes have the attributes of their base: no data class is made for them.
        if not hasattr(cls, "__declared__") or not _ANNOTATED.isdisjoint(cls.__dict__):
            try:
                dataclass(init=False, frozen=True, kw_only=True, eq=False)(cls)
            except ValueError as error:  # a default that can be changed
                hint = "write a tuple, such as pads: tuple[int, ...] = (0, 0), or ClassVar[...] for what is not an attribute"
                raise OperatorError(f"operator {cls.__qualname__}: {error}", hint=hint) from None
            cls.attributes = attribute_specs(cls)
            cls._required = tuple(name for name, spec in cls.attributes.items() if spec.required)
            cls._graphs = tuple(name for name, spec in cls.attributes.items() if spec.type_name == "Graph")
            own = fields_of(cls).values()
            cls._defaults = {f.name: f.default for f in own if f.default is not MISSING}
            cls._factories = {f.name: f.default_factory for f in own if f.default_factory is not MISSING}

    def __init__(self, /, *positional: Any, **given: Any) -> None:
        try:
            if positional:
                shown = reprlib.repr(positional[0])
                raise OperatorError(f"got {shown} without a name", hint=f"give attributes by name: {', '.join(self.attributes)}")
            values = read_attributes(type(self), given)
        except OperatorError as error:
            raise OperatorError(f"operator {self.op_type}: {error.message}", hint=error.hint) from None
        self._assign(values)

    def _assign(self, values: Mapping[str, Any]) -> None:
        made = {name: make() for name, make in self._factories.items() if name not in values}
        vars(self).update({**self._defaults, **made, **values})
        if (check := getattr(self, "__post_init__", None)) is not None:
            check()

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(
            f"cannot assign to field {name!r}: operators are immutable, and shared by requests and threads; "
            "attributes are annotated class variables, set by the constructor"
        )

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    # --- what an author writes -------------------------------------------------------------------------------------

    @classmethod
    def like(cls, other: AbstractOperator, **values: Any) -> Self:
        """An operator of this class with the attributes that it shares with another one, some changed."""
        return cls(**{**{name: getattr(other, name) for name in cls.attributes if name in other.attributes}, **values})

    def infer(self, *inputs: Any, **_: Any) -> Any:
        """Output types from input types: one `TensorType`, or a tuple for several outputs.

        Shapes are numbers when this is called; inputs that are left out are None; `TensorType.value` has the content of
        inputs that are known while planning. Raise `ShapeError` for shapes that do not fit. The default gives every
        output the type of the first input, which is right for elementwise operators of one input; an output whose port names
        a data type (`"Y: int64"`) has that.
        """
        first = inputs[0].with_shape(inputs[0].shape)
        return tuple(first.with_dtype(DType(port.type)) if port.type in DTYPE_NAMES else first for port in self.outputs)

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """Compute the outputs in NumPy: one array, or a tuple for several. Inputs left out are None; never write to inputs.

        The default runs the composition, if there is one, by the references of its operators.
        """
        if not self.has_composition():
            raise UnknownOperator(f"{self.key} has neither a NumPy reference nor a composition", hint="define reference()")
        return evaluate_composition(self, inputs)

    @classmethod
    def cases(cls, rng: Any) -> Iterable[Any]:
        """Test cases (`dovetail.testing.Case`) with random inputs from `rng`, a `numpy.random.Generator`. Default: none.

        The conformance kit runs them.

        Expected outputs come from hand or from a computation of their own, never from `reference`. Every data type for which
        the class has a kernel needs a case. Import `Case` inside this method: it is called by tests only.
        """
        return ()

    # --- what the runtime asks -------------------------------------------------------------------------------------

    @property
    def named_subgraphs(self) -> Mapping[str, Graph]:
        """The attributes that are graphs, by name."""
        return {name: graph for name in self._graphs if (graph := getattr(self, name)) is not None}

    @property
    def subgraphs(self) -> tuple[Graph, ...]:
        """The attributes that are graphs."""
        return tuple(self.named_subgraphs.values()) if self._graphs else ()

    @classmethod
    def translation(cls, domain: str, op_type: str) -> Translation | None:
        """How nodes of this name become the operator; None for its own name and for names that are not its."""
        found = [t for t in cls.translations if (t.domain, t.op_type) == (domain, op_type)]
        return found[0] if found else None

    @classmethod
    def has_reference(cls) -> bool:
        """True when the class defines `reference`."""
        return cls.reference is not Operator.reference

    @classmethod
    def from_attributes(cls, attributes: Mapping[str, Any]) -> "Operator":
        """An instance from the attributes of a model file. Raises `OperatorError` for a missing, unknown or mistyped one."""
        made = cls.__new__(cls)
        made._assign(read_attributes(cls, attributes))
        return made

    @classmethod
    def check(cls, inputs: Sequence[TensorType | None], outputs: int) -> None:
        """Check the input count and data types against the ports. Raises `OperatorError`."""
        check_ports(cls, inputs, outputs)

    @classmethod
    def check_inferred(cls, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> None:
        """Check the data types that `infer` gives against the ports. Raises `OperatorError`."""
        check_inferred(cls, inputs, outputs)

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
        for name in ("post_ops", "compose", "kernels", "propagates_nan", "magnitude"):
            if name not in cls.__dict__:
                setattr(cls, name, getattr(Operator, name))
