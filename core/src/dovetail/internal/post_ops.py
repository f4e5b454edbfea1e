"""Single post-ops as operators. Chains that a user attached expand into these; those that no kernel fuses run as nodes."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.errors import OperatorError, ShapeError
from dovetail.evaluate.post_ops import apply_post_op
from dovetail.graph.graph import AbstractOperator, Port
from dovetail.graph.post_ops import Eltwise, PostOp
from dovetail.graph.types import TensorType
from dovetail.operators.ports import FLOATS

__all__ = ["SinglePostOp", "operator_of"]

Types = Sequence[TensorType | None]

_INPUTS = (Port("X"), Port("operand"))


@dataclass(frozen=True, eq=False)
class SinglePostOp(AbstractOperator):
    """One post-op over input 0, which the fusion pass merges again where the device supports it.

    `post_op` has no name for its operand: that is input 1.
    """

    domain = "dovetail"
    stem = "post_op"
    in_place = True
    outputs = (Port("Y"),)
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType({"post_op": None})
    post_op: PostOp = dataclasses.field(kw_only=True)

    @property
    def op_type(self) -> str:
        """`Eltwise`, `Binary`, `Sum` or `Prelu`."""
        return type(self.post_op).__name__

    @property
    def inputs(self) -> tuple[Port, ...]:
        """`X`, and `operand` unless it is eltwise."""
        return _INPUTS[:1] if isinstance(self.post_op, Eltwise) else _INPUTS

    def check(self, inputs: Types, outputs: int) -> None:
        """Raises `OperatorError` unless all inputs have one floating-point type."""
        found = [t.dtype for t in inputs if t is not None]
        if len(found) != len(self.inputs) or set(found) != {found[0]} or found[0] not in FLOATS:
            accepted = f"{len(self.inputs)} of one floating-point type"
            raise OperatorError(f"the inputs are {', '.join(map(str, inputs)) or 'missing'}; accepted: {accepted}")

    def infer(self, x: TensorType, operand: TensorType | None = None) -> TensorType:
        """The type of X. Raises `ShapeError` for an operand that does not broadcast to it."""
        if operand is not None:
            tail = x.dims[x.rank - operand.rank :] if operand.rank <= x.rank else None
            if tail is None or not all(d in (1, t) for d, t in zip(operand.dims, tail, strict=True)):
                raise ShapeError(f"the operand of the post-op is {operand}; accepted: a shape that broadcasts to {list(x.dims)}")
        return x.with_shape(x.shape)

    def reference(self, x: NDArray[Any], operand: NDArray[Any] | None = None) -> NDArray[Any]:
        """The post-op in float32, float64 for float64, rounded once."""
        return apply_post_op(self.post_op, x, operand)

    def post_ops(self, types: Types, names: Sequence[str], chained: int) -> tuple[PostOp, ...] | None:
        """The post-op itself, when X is chained and is another value than the operand."""
        if isinstance(self.post_op, Eltwise):
            return (self.post_op,)
        if chained != 0 or names[0] == names[1]:
            return None
        return (dataclasses.replace(self.post_op, operand=names[1]),)

    def describe(self) -> str:
        """The post-op's parameters."""
        given = ((f.name, getattr(self.post_op, f.name)) for f in dataclasses.fields(self.post_op) if f.name != "operand")
        return ", ".join(f"{name}={value!r}" for name, value in given)


def operator_of(post_op: PostOp) -> tuple[SinglePostOp, tuple[str, ...]]:
    """The operator that computes a post-op alone, and its inputs after the first."""
    if isinstance(post_op, Eltwise):
        return SinglePostOp(post_op=post_op), ()
    return SinglePostOp(post_op=dataclasses.replace(post_op, operand="")), (post_op.operand,)
