"""Operators that passes leave as they are, because the user gave a device a kernel for their name."""

from collections.abc import Mapping
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.errors import ShapeError
from dovetail.evaluate.inference import padded
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator, Port
from dovetail.graph.types import TensorType

__all__ = ["OpaqueOperator", "PinnedOperator"]

Types = tuple[TensorType | None, ...]

_HINT = "write an Operator class with infer() and add it (core.add_extension('my_ops.py')), or export the model with its shapes"


@dataclass(frozen=True, eq=False, kw_only=True)
class OpaqueOperator(AbstractOperator):
    """A node that a device runs under the name it has in the model.

    No class defines the operator under that name, so its output types are those that the model declares. `raw` has the
    attributes, `declared` the types that the model declares for the inputs (None where it declares none) and `results` those of
    the outputs. `known` is None here; see `PinnedOperator`.
    """

    domain: str = field()
    op_type: str = field()
    raw: Mapping[str, Any]
    declared: Types
    results: Types
    known: AbstractOperator | None = None

    stem = "opaque"
    inputs = (Port("inputs", variadic=True),)
    outputs = (Port("outputs", variadic=True),)

    def infer(self, *inputs: TensorType | None) -> tuple[TensorType, ...]:
        """The declared types. Raises `ShapeError` where none are declared, or where the inputs differ from those declared."""
        for index, (given, declared) in enumerate(zip(inputs, self.declared, strict=False)):
            if given is not None and declared is not None and not _agree(given, declared):
                raise ShapeError(
                    f"no class infers the types of {self.key}; the model declares {declared} for input {index}", hint=_HINT
                )
        for index, result in enumerate(self.results):
            if result is not None and not result.is_static:
                what = "nothing" if result.shape is None else str(result)
                message = f"no class infers the types of {self.key}, and the model declares {what} for output {index}"
                raise ShapeError(message, hint=_HINT)
        return tuple(TensorType(DType.FLOAT32, ()) if result is None else result for result in self.results)

    def describe(self) -> str:
        """The raw attributes."""
        return ", ".join(f"{name}={value!r}" for name, value in self.raw.items())


@dataclass(frozen=True, eq=False, kw_only=True)
class PinnedOperator(OpaqueOperator):
    """A node whose operator is defined: `known`, its class with the attributes, computes it on other devices."""

    known: AbstractOperator

    @staticmethod
    def of(known: AbstractOperator, declared: Types, results: Types) -> "PinnedOperator":
        """The operator with the types of a node's inputs and outputs."""
        raw = {name: getattr(known, name) for name in known.attributes}
        return PinnedOperator(
            domain=known.domain, op_type=known.op_type, raw=raw, declared=declared, results=results, known=known
        )

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """The result of `known` in NumPy."""
        return self.known.reference(*padded(inputs, self.known.inputs))

    def describe(self) -> str:
        """The attributes that differ from their defaults."""
        return self.known.describe()


def _agree(given: TensorType, declared: TensorType) -> bool:
    return given.dtype is declared.dtype and (not declared.is_static or given.shape == declared.shape)
