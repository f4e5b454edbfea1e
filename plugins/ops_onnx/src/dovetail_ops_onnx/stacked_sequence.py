"""Tensors that a loop stacked, in place of a sequence that the model joined. Passes have it; it is not in the standard."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, GraphBuilder, OperatorError, Port, ShapeError, TensorType
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.unsqueeze import Unsqueeze

__all__ = ["StackedSequence"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class StackedSequence(AbstractOperator):
    """The items, then the tensors that are stacked along axis 0, joined along a new axis: at least one, all of one shape.

    Where nothing is stacked, the loop had no iterations, and its result need not have the type of the items.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "StackedSequence"
    stem: ClassVar[str] = "stacked_sequence"
    inputs: ClassVar[tuple[Port, ...]] = (Port("stacked"), Port("items", variadic=True))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("axis",)))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    axis: int

    def infer(self, stacked: TensorType, *items: TensorType) -> TensorType:
        """The shape of a tensor with their number at `axis`."""
        rows = stacked.dims[0]
        one = items[0] if items else stacked.with_shape(stacked.dims[1:])
        others = [*items[1:], *([stacked.with_shape(stacked.dims[1:])] if rows else [])]
        if not rows and not items:
            raise OperatorError("the sequence is empty; accepted: at least one element")
        if any(other != one for other in others):
            shown = ", ".join(map(str, dict.fromkeys([one, *others])))
            raise ShapeError(f"the sequence has elements {shown}; accepted: elements of one type and shape")
        axis = check_axis(self.axis, one.rank + 1)
        return one.with_shape((*one.dims[:axis], rows + len(items), *one.dims[axis:]))

    def compose(self, g: GraphBuilder, stacked: str, *given: str) -> str:
        """A concatenation of items and what is stacked, then a transpose."""
        items = [item for item in given if item]
        rows, rank = self._rows_and_rank([g.type_of(name) for name in (stacked, *items)])
        axes = g.constant(np.zeros(1, np.int64)) if items else ""
        parts = [*(g.node(Unsqueeze(), item, axes) for item in items), *([stacked] if rows else [])]
        whole = g.node(Concat(axis=0), *parts) if len(parts) > 1 else parts[0]
        order = [*range(1, rank)]
        order.insert(check_axis(self.axis, rank), 0)
        return str(g.node(Transpose(perm=tuple(order)), whole))

    @staticmethod
    def _rows_and_rank(types: Sequence[TensorType | None]) -> tuple[int, int]:
        """How many tensors are stacked, and the rank of the result."""
        stacked, *items = (t for t in types if t is not None)
        return stacked.dims[0], items[0].rank + 1 if items else stacked.rank

    def reference(self, stacked: Array, *items: Array) -> Array:
        """A new array, or a view."""
        if not items:
            return np.moveaxis(stacked, 0, self.axis)
        return np.stack([*items, *stacked], self.axis)
