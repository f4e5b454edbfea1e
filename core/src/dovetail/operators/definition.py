"""Checks an operator class when it is registered: what would fail for every node that uses it."""

import inspect
from collections.abc import Collection
from typing import Any

from dovetail.errors import OperatorError, did_you_mean
from dovetail.graph.dtype import DType
from dovetail.operators.kernels import OpenCLKernel
from dovetail.operators.operator import Operator

__all__ = ["check_definition"]

_ATTRIBUTE_TYPES = {"float": ("int", "float", "bool"), "int": ("int", "bool"), "uint": ("int", "bool")}
"""C type of a scalar -> the attribute types that can be passed as one."""


def check_definition(cls: type[Operator]) -> None:
    """Raise `OperatorError` naming the class for wrong `types`, methods without its inputs, or scalars without attributes."""
    for variable, accepted in cls.types.items():
        if not isinstance(accepted, Collection) or not all(isinstance(dtype, DType) for dtype in accepted):
            hint = "write FLOATS, INTEGERS, NUMERIC or a set such as {DType.FLOAT32}"
            raise OperatorError(f"operator {cls.key}: types[{variable!r}] is {accepted!r}", hint=hint)
    for name in ("infer", "reference"):
        _check_arguments(cls, name)
    for kernel in cls.kernels:
        if isinstance(kernel, OpenCLKernel):
            _check_scalars(cls, kernel)


def _check_arguments(cls: type[Operator], name: str) -> None:
    """The runtime passes one value for each input, None for those left out; a variadic input has any number."""
    code = getattr(getattr(cls, name), "__code__", None)
    if code is None or code.co_flags & inspect.CO_VARARGS:
        return
    accepted, ports = code.co_argcount - 1, [port.name for port in cls.inputs]
    if cls.inputs and cls.inputs[-1].variadic:
        hint = f"write def {name}(self, {', '.join([*ports[:-1], f'*{ports[-1]}'])})"
        raise OperatorError(f"operator {cls.key}: {name}() takes {accepted} inputs, and {ports[-1]!r} is variadic", hint=hint)
    required = accepted - len(getattr(cls, name).__defaults__ or ())
    hint = f"write def {name}({', '.join(['self', *ports])})"
    if not required <= len(ports) <= accepted:
        takes = f"takes {accepted} inputs; the class has {len(ports)} ({', '.join(ports)})"
        raise OperatorError(f"operator {cls.key}: {name}() {takes}", hint=hint)
    names = code.co_varnames[1 : len(ports) + 1]
    if sorted(names) == sorted(ports) and list(names) != ports:
        order = f"takes the inputs as {', '.join(names)}; they are given in the order of the ports, {', '.join(ports)}"
        raise OperatorError(f"operator {cls.key}: {name}() {order}", hint=hint)


def _check_scalars(cls: type[Operator], kernel: OpenCLKernel) -> None:
    for attribute, c_type in kernel.scalars:
        spec: Any = cls.attributes.get(attribute)
        if spec is None:
            raise OperatorError(
                f"operator {cls.key}: {kernel.origin}: the scalar {attribute!r} is not an attribute",
                hint=did_you_mean(attribute, cls.attributes) or "the class has no attributes",
            )
        if spec.type_name not in _ATTRIBUTE_TYPES[c_type]:
            raise OperatorError(
                f"operator {cls.key}: {kernel.origin}: the scalar {attribute!r} is {c_type}, the attribute {spec.type_name}",
                hint=f"attributes that can be passed as {c_type}: {', '.join(_ATTRIBUTE_TYPES[c_type])}",
            )
