"""Operators that passes see only from outside, because a device has a kernel for their name and nothing else may be assumed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from dovetail.errors import ShapeError
from dovetail.graph.dtype import DType
from dovetail.graph.types import TensorType
from dovetail.op import Operator

__all__ = ["OpaqueOperator", "PinnedOperator"]

Types = tuple[TensorType | None, ...]

_HINT = "write an Operator class with infer() and add it (core.add_extension('my_ops.py')), or export the model with its shapes"


class OpaqueOperator(Operator):
    """A node of an operator that a device runs under the name it has in the model, and that no class defines under that name:
    its output types are those that the model declares.

    `raw` has the attributes as the frontend read them, `declared` the types that the model declares for the node's inputs
    (None where it declares none) and `results` those of its outputs. `known` is the operator as its class reads it, None here.
    """

    inputs = ("inputs*",)
    outputs = ("outputs*",)

    def __init__(self, domain: str, op_type: str, raw: Mapping[str, Any], declared: Types, results: Types) -> None:
        for name, value in {
            "domain": domain,
            "op_type": op_type,
            "raw": raw,
            "declared": declared,
            "results": results,
        }.items():
            object.__setattr__(self, name, value)

    known: ClassVar[Operator | None] = None

    if TYPE_CHECKING:
        raw: ClassVar[Mapping[str, Any]]
        declared: ClassVar[Types]
        results: ClassVar[Types]

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        """The declared types. Raises `ShapeError` where there are none, or where the inputs are others than declared."""
        for index, (given, said) in enumerate(zip(inputs, self.declared, strict=False)):
            if given is not None and said is not None and not _agree(given, said):
                raise ShapeError(
                    f"no class infers the types of {self.key}; the model declares {said} for input {index}", hint=_HINT
                )
        for index, result in enumerate(self.results):
            if result is not None and not result.is_static:
                what = "nothing" if result.shape is None else str(result)
                told = f"no class infers the types of {self.key}, and the model declares {what} for output {index}"
                raise ShapeError(told, hint=_HINT)
        return tuple(TensorType(DType.FLOAT32, ()) if result is None else result for result in self.results)

    def describe(self) -> str:
        """The raw attributes."""
        return ", ".join(f"{name}={value!r}" for name, value in self.raw.items())


class PinnedOperator(OpaqueOperator):
    """A node whose operator is defined, for which the user gave a device a kernel: `known` computes it elsewhere."""

    def __init__(self, known: Operator, declared: Types, results: Types) -> None:
        super().__init__(
            known.domain, known.op_type, {name: getattr(known, name) for name in known.attributes}, declared, results
        )
        object.__setattr__(self, "known", known)

    if TYPE_CHECKING:
        known: ClassVar[Operator]

    def reference(self, *inputs: Any) -> Any:
        """What the operator computes in NumPy."""
        missing = sum(not port.variadic for port in self.known.inputs) - len(inputs)
        return self.known.reference(*inputs, *[None] * missing)

    def describe(self) -> str:
        """The attributes that differ from their defaults."""
        return self.known.describe()


def _agree(given: TensorType, said: TensorType) -> bool:
    return given.dtype is said.dtype and (not said.is_static or given.shape == said.shape)
