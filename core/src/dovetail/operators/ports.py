"""Input and output ports of operators: the grammar `name[?|*][: TypeVariable]`, and the check of types against them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from dovetail.errors import OperatorError
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Port
from dovetail.graph.types import TensorType

FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64})
"""The floating-point types that operators compute in."""
INTEGERS = frozenset({DType.INT8, DType.INT16, DType.INT32, DType.INT64, DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64})
"""The integer types of 8 bits and more."""
NUMERIC = FLOATS | INTEGERS
"""`FLOATS` and `INTEGERS`."""


def parse_ports(cls: Any, side: str) -> tuple[Port, ...]:
    """The ports written in `cls.inputs` or `cls.outputs`. Raises `OperatorError` for text outside the grammar."""
    given = getattr(cls, side)
    if isinstance(given, str):
        hint = f"write {side} = ({given!r},), with the comma"
        raise OperatorError(f"operator {cls.__qualname__}: {side} is the text {given!r}; accepted: a tuple of ports", hint=hint)
    if not isinstance(given, (tuple, list)):
        raise OperatorError(f"operator {cls.__qualname__}: {side} is {given!r:.100}; accepted: a tuple of ports")
    ports = tuple(p if isinstance(p, Port) else _parse_port(cls, p) for p in given)
    if any(port.variadic for port in ports[:-1]):
        raise OperatorError(f"operator {cls.__qualname__}: only the last of {side} may be variadic ('*')")
    for port in ports:
        if port.type and port.type not in cls.types and port.type not in DTYPE_NAMES:
            known = ", ".join(map(str, cls.types)) or "none"  # a set where a mapping was meant is shown, too
            raise OperatorError(
                f"operator {cls.__qualname__}: port {port.name!r} has type {port.type!r}",
                hint=f"accepted: a data type, or one of the type variables: {known}. "
                f"For another one say what it may be: types = {{{port.type!r}: FLOATS}}",
            )
    return ports


DTYPE_NAMES = frozenset(d.value for d in DType)


def _parse_port(cls: Any, text: str) -> Port:
    before, colon, after = text.partition(":")
    name, kind = before.rstrip("?*"), after.lstrip()
    mark = before[len(name) :]
    if mark not in ("", "?", "*") or not _is_word(name) or bool(colon) != _is_word(kind):
        hint = "write 'X', 'X: T', 'B?: T' or 'inputs*: T'"
        raise OperatorError(f"operator {cls.__qualname__}: {text!r} is not a port", hint=hint)
    return Port(name, mark == "?", mark == "*", kind)


def _is_word(text: str) -> bool:
    return text.replace("_", "a").isalnum()


def port_of(ports: Sequence[Port], index: int) -> Port | None:
    """The port of argument `index`; a variadic last port takes all further ones; None past the end."""
    if index < len(ports):
        return ports[index]
    return ports[-1] if ports and ports[-1].variadic else None


def check_ports(cls: Any, inputs: Sequence[TensorType | None], outputs: int) -> None:
    """Check the count and data types of `inputs`, and the count of `outputs`. Raises `OperatorError`."""
    _check_ports(cls, _dtypes(inputs), outputs)


def _dtypes(types: Sequence[TensorType | None]) -> tuple[DType | None, ...]:
    return tuple([None if t is None else t.dtype for t in types])


# The checks below are made once for equal arguments: models have many nodes of the same operator and data types.
@lru_cache(1024)
def _check_ports(cls: Any, inputs: tuple[DType | None, ...], outputs: int) -> None:
    check_inputs(cls, [given is not None for given in inputs])
    bound: dict[str, tuple[DType, str]] = {}
    for index, given in enumerate(inputs):
        port = port_of(cls.inputs, index)
        if given is not None and port is not None:
            _check_type(cls, port, given, bound)
    if outputs > len(cls.outputs) and not (cls.outputs and cls.outputs[-1].variadic):
        raise OperatorError(f"has at most {len(cls.outputs)} outputs, {outputs} are requested")


def check_inputs(cls: Any, given: Sequence[bool]) -> None:
    """Check the number of inputs, and that those left out, False, are optional. Raises `OperatorError`."""
    _check_inputs(cls, tuple(given))


@lru_cache(1024)
def _check_inputs(cls: Any, given: tuple[bool, ...]) -> None:
    for index, is_given in enumerate(given):
        port = port_of(cls.inputs, index)
        if port is None:
            raise OperatorError(f"takes at most {len(cls.inputs)} inputs, got {len(given)}")
        if not is_given and not port.optional:
            what = f"value {index - len(cls.inputs) + 2} of input" if port.variadic else "input"
            raise OperatorError(f"{what} {port.name!r} is required and was left out")
    for port in cls.inputs[len(given) :]:
        if not port.optional and not port.variadic:
            raise OperatorError(f"input {port.name!r} is required; got {len(given)} inputs")


def _check_type(cls: Any, port: Port, dtype: DType, bound: dict[str, tuple[DType, str]]) -> None:
    allowed = cls.types.get(port.type)
    if allowed is None:
        if port.type and dtype.value != port.type:
            raise OperatorError(f"input {port.name!r} is {dtype}; accepted: {port.type}")
        return
    if dtype not in allowed:
        raise OperatorError(f"input {port.name!r} is {dtype}; accepted: {', '.join(sorted(d.value for d in allowed))}")
    first, name = bound.setdefault(port.type, (dtype, port.name))
    # A variadic port shares one type as well: ONNX calls that homogeneous.
    if first is not dtype:
        raise OperatorError(f"input {port.name!r} is {dtype} but input {name!r} is {first}; both must have the same type")


def check_inferred(cls: Any, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> None:
    """Check the data types that `infer` gave for `inputs`. Raises `OperatorError`."""
    _check_inferred(cls, _dtypes(inputs), tuple([t.dtype for t in outputs]))


@lru_cache(1024)
def _check_inferred(cls: Any, inputs: tuple[DType | None, ...], outputs: tuple[DType, ...]) -> None:
    for index, dtype in enumerate(outputs):
        port = port_of(cls.outputs, index)
        if port is None or not port.type or dtype.value == port.type:
            continue
        allowed = cls.types.get(port.type, ())
        same = [given for other, given in zip(cls.inputs, inputs, strict=False) if other.type == port.type and given is not None]
        if dtype not in allowed or (same and same[0] is not dtype):
            accepted = f"{same[0]}, as its input" if same else ", ".join(sorted(d.value for d in allowed)) or port.type
            hint = f"return another type from infer(), or declare this one: outputs = ('{port.name}: {dtype}',)"
            raise OperatorError(f"infer() gave {dtype} for output {port.name!r}; accepted: {accepted}", hint=hint)
