"""`@operator`: an operator class from a plain function, for notebooks and extension files."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, Protocol, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import OperatorError, ShapeError
from dovetail.graph.builder import GraphBuilder
from dovetail.graph.dtype import DType
from dovetail.graph.graph import KernelSource
from dovetail.graph.types import TensorType
from dovetail.operators.operator import Operator
from dovetail.operators.ports import FLOATS

__all__ = ["OperatorFunction", "Signature", "operator"]

Function = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R", covariant=True)


def operator(
    domain: str,
    *,
    name: str = "",
    since: int = 1,
    outputs: Sequence[str] = ("Y",),
    types: frozenset[DType] = FLOATS,
    infer: Function | None = None,
    kernels: Sequence[KernelSource] = (),
) -> Callable[[Callable[P, R]], "OperatorFunction[P, R]"]:
    """Make an `Operator` class of a NumPy function::

        @operator("my.ops")
        def swish(X, *, beta: float = 1.0):
            return X / (1 + np.exp(-beta * X))

        core.add_extension(swish)
        y = g.node(swish(beta=2.0), x)  # with keywords alone: the operator, for a graph
        y = swish(g, x, beta=2.0)  # the same node
        array = swish(np.ones(3), beta=2.0)  # on arrays: the function's result, as the reference gives it

    Positional arguments are inputs, those with the default None are optional, `*X` takes any number. Keyword-only arguments are
    attributes, with an annotation that `Operator` accepts. `name` is the name in models (`Swish` by default), `outputs`
    are ports as in `Operator`. All inputs have one data type out of `types`; float16 and bfloat16 arrive as float32, and
    floating-point results are rounded once, to the types that inference gives. `infer` has the arguments of the function and
    gets `TensorType`s in place of arrays; by default every output has the shape to which all inputs broadcast. Raises
    `OperatorError` for other signatures.
    """

    def decorate(function: Callable[P, R]) -> OperatorFunction[P, R]:
        signature = Signature(function, reserved=dir(Operator))
        if infer is not None:
            signature.require_same(infer)
        declared = outputs if infer else [o if ":" in o else f"{o}: T" for o in outputs]
        op_type = name or "".join(word[:1].upper() + word[1:] for word in function.__name__.split("_"))
        body = {
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__doc__": function.__doc__,
            "__annotations__": signature.annotations,
            **signature.defaults,
            "domain": domain,
            "op_type": op_type,
            "since": since,
            "inputs": signature.ports,
            "outputs": tuple(declared),
            "types": {"T": types},
            "kernels": tuple(kernels),
            "infer": _inference(signature, infer or _broadcast(len(outputs))),
            "reference": _reference(signature, function),
        }
        made: Any = _OperatorFunction(op_type, (Operator,), body)
        return made  # type: ignore[no-any-return]  # the metaclass makes the class callable as the protocol says

    return decorate


class OperatorFunction(Protocol[P, R]):
    """The result of `@operator`, an operator class that can be called in three ways.

    With arrays it computes, with a `GraphBuilder` and names it adds a node, with attributes alone it gives the operator.
    """

    domain: str
    op_type: str
    since: int

    @overload
    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R: ...

    @overload
    def __call__(self, g: GraphBuilder, *inputs: str, **attributes: Any) -> Any: ...

    @overload
    def __call__(self, **attributes: Any) -> Operator: ...

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """See the class."""


class _OperatorFunction(type(Operator)):  # type: ignore[misc]  # whatever metaclass it has
    """The metaclass of classes that `@operator` makes: see `OperatorFunction`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        names = [port.name for port in cls.inputs]
        attributes = {name: value for name, value in kwargs.items() if name not in names}
        op = super().__call__(**attributes)
        if args and isinstance(args[0], GraphBuilder):
            return args[0].node(op, *args[1:], *(kwargs[name] for name in names if name in kwargs))
        if not args and len(attributes) == len(kwargs):
            return op
        given = [*args, *(kwargs.get(name) for name in names[len(args) :])]
        arrays = [None if value is None else np.asarray(value) for value in given]
        try:
            op.check([None if array is None else TensorType.of(array) for array in arrays], len(cls.outputs))
            found = op.reference(*arrays)
        except OperatorError as error:
            error.message = f"{op.key}: {error.message}"
            raise
        return found[0] if len(found) == 1 else found


class Signature:
    """A function's arguments as ports and attributes.

    The first `before` of them are neither; inputs with the default `absent` may be left out, and have it then.
    """

    def __init__(self, function: Function, reserved: Sequence[str], before: int = 0, absent: Any = None) -> None:
        self._function = function.__name__
        self._absent = absent
        arguments = list(inspect.signature(function).parameters.values())[before:]
        attributes = [a for a in arguments if a.kind is a.KEYWORD_ONLY]
        self.ports = tuple(self._port(a) for a in arguments if a.kind is not a.KEYWORD_ONLY)
        self.is_variadic = any(a.kind is a.VAR_POSITIONAL for a in arguments)
        for a in attributes:
            if a.name in reserved:
                raise self._error(a, "has a name that operators need themselves", "call it something else")
            if a.annotation is a.empty:
                raise self._error(a, "is an attribute without a type", f"annotate it: {a.name}: float")
        self.annotations = {a.name: a.annotation for a in attributes}
        self.defaults = {a.name: a.default for a in attributes if a.default is not a.empty}

    def require_same(self, infer: Function) -> None:
        """Raise `OperatorError` for an inference function that cannot be called with the arguments of the function."""
        try:
            inspect.signature(infer).bind(*self.ports, **dict.fromkeys(self.annotations))
        except TypeError as error:
            inputs, attributes = ", ".join(port.partition(":")[0] for port in self.ports), ", ".join(self.annotations)
            raise OperatorError(
                f"operator {self._function}: infer cannot be called as the function is: {error}",
                hint=f"it has the same arguments: inputs {inputs or 'none'}; attributes {attributes or 'none'}",
            ) from None

    def _port(self, argument: inspect.Parameter) -> str:
        if argument.kind is argument.VAR_KEYWORD:
            raise self._error(argument, "takes any keyword", "name each attribute: *, beta: float = 1.0")
        if argument.kind is argument.VAR_POSITIONAL:
            return f"{argument.name}*: T"
        if argument.default is argument.empty:
            return f"{argument.name}: T"
        if argument.default != self._absent:
            raise self._error(argument, f"is an input with the default {argument.default!r}", "put * before attributes")
        return f"{argument.name}?: T"

    def _error(self, argument: inspect.Parameter, problem: str, hint: str) -> OperatorError:
        return OperatorError(f"operator {self._function}: the argument {str(argument)!r} {problem}", hint=hint)

    def call(self, function: Function, op: Any, inputs: Sequence[Any], before: Sequence[Any] = ()) -> tuple[Any, ...]:
        """`function` of what comes before, the inputs, and the operator's attributes; always a tuple."""
        fixed = len(self.ports) - self.is_variadic
        # A node without variadic inputs is padded like any other that leaves inputs out.
        left_out = [i is None or (isinstance(i, str) and i == self._absent) for i in inputs]  # arrays do not compare to one truth
        further = (i for i, absent in zip(inputs[fixed:], left_out[fixed:], strict=True) if not (absent and self.is_variadic))
        given = [*before, *inputs[:fixed], *further]
        found = function(*given, **{name: getattr(op, name) for name in self.annotations})
        return found if isinstance(found, tuple) else (found,)


def _inference(signature: Signature, infer: Function) -> Function:
    def method(self: Any, *inputs: TensorType | None) -> Any:
        return signature.call(infer, self, inputs)

    return method


def _reference(signature: Signature, function: Function) -> Function:
    def method(self: Any, *inputs: NDArray[Any] | None) -> Any:
        known = [None if a is None else TensorType.of(a, known=True) for a in inputs]
        types = self.infer(*known)
        results = signature.call(function, self, [None if a is None else _wide(a) for a in inputs])
        if len(results) != len(types):
            raise OperatorError(f"{self.key}: the function gave {len(results)} results; the operator has {len(types)} outputs")
        return tuple(_rounded(result, t) for result, t in zip(results, types, strict=True))

    return method


def _broadcast(outputs: int) -> Function:
    def infer(*inputs: TensorType | None, **_: Any) -> tuple[TensorType, ...]:
        given = [t for t in inputs if t is not None]
        if not given:
            raise OperatorError("takes at least 1 input, got 0")
        try:
            shape = np.broadcast_shapes(*(t.dims for t in given))
        except ValueError:
            raise ShapeError(f"the shapes {', '.join(str(list(t.dims)) for t in given)} do not broadcast") from None
        return (given[0].with_shape(shape),) * outputs

    return infer


def _wide(array: NDArray[Any]) -> NDArray[Any]:
    return array.astype(np.float32) if DType.of(array.dtype).is_float and array.dtype.itemsize < 4 else array


def _rounded(result: Any, expected: TensorType) -> NDArray[Any]:
    array = np.asarray(result)
    both_float = expected.dtype.is_float and DType.of(array.dtype).is_float
    return array.astype(expected.dtype.numpy, copy=False) if both_float else array
