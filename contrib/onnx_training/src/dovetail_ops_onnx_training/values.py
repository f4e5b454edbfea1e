"""Values of a graph under construction, as derivatives are written: arithmetic on them adds nodes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, Operator, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.where import Where

__all__ = ["Value", "select"]


class Value:
    """A value by its name. `+ - * /` and the methods add a node to the graph and return its output.

    A number beside a value becomes a constant of its data type. Shapes are numbers always: `dims`.
    """

    __slots__ = ("g", "name")

    def __init__(self, g: GraphBuilder, name: str) -> None:
        self.g = g
        self.name = name

    @property
    def type(self) -> TensorType:
        """Data type, shape, and the content where it is known."""
        found = self.g.type_of(self.name)
        assert found is not None, "a value has a name"
        return found

    @property
    def dims(self) -> tuple[int, ...]:
        """The shape."""
        return self.type.dims

    @property
    def rank(self) -> int:
        """The number of dimensions."""
        return self.type.rank

    @property
    def dtype(self) -> DType:
        """The data type."""
        return self.type.dtype

    @property
    def known(self) -> NDArray[Any]:
        """The content, which is known while planning. Raises `ValueError` where it is not."""
        value = self.type.value
        if value is None:
            raise ValueError(f"the content of {self.name!r} depends on data")
        return value

    def constant(self, value: Any, dtype: DType | None = None) -> "Value":
        """A constant of this value's data type, or of another."""
        return Value(self.g, self.g.constant(value, dtype or self.dtype))

    def ints(self, values: Sequence[int]) -> "Value":
        """A constant vector of int64."""
        return self.constant(list(values), DType.INT64)

    def zeros(self) -> "Value":
        """Zeros in this value's type and shape."""
        return self.constant(0).expand(self.dims)

    def apply(self, op: Operator, *others: "Value | float | None") -> "Value":
        """Output 0 of an operator on this value and others; None leaves an input out."""
        return self.outputs(op, *others, count=1)[0]

    def outputs(self, op: Operator, *others: "Value | float | None", count: int) -> tuple["Value", ...]:
        """The first outputs of an operator on this value and others."""
        names = [self.name, *("" if other is None else self._value(other).name for other in others)]
        written = self.g.node(op, *names, outputs=count)
        return tuple(Value(self.g, name) for name in ((written,) if isinstance(written, str) else written))

    def _value(self, other: "Value | float") -> "Value":
        return other if isinstance(other, Value) else self.constant(other)

    def __add__(self, other: "Value | float") -> "Value":
        return self.apply(Add(), other)

    def __sub__(self, other: "Value | float") -> "Value":
        return self.apply(Sub(), other)

    def __mul__(self, other: "Value | float") -> "Value":
        value = self._value(other)
        for one, rest in ((self, value), (value, self)):
            # Derivatives begin with a 1, which need not be multiplied with.
            if one.rank == 0 and one.type.value is not None and one.type.value == 1 and one.dtype is rest.dtype:
                return rest
        return self.apply(Mul(), value)

    def __truediv__(self, other: "Value | float") -> "Value":
        return self.apply(Div(), other)

    def __radd__(self, other: float) -> "Value":
        return self._value(other) + self

    def __rsub__(self, other: float) -> "Value":
        return self._value(other) - self

    def __rmul__(self, other: float) -> "Value":
        return self._value(other) * self

    def __rtruediv__(self, other: float) -> "Value":
        return self._value(other) / self

    def __neg__(self) -> "Value":
        return self.apply(Neg())

    def cast(self, dtype: DType) -> "Value":
        """In another data type."""
        return self if dtype is self.dtype else self.apply(Cast(to=dtype))

    def reshape(self, dims: Sequence[int]) -> "Value":
        """Under another shape."""
        return self if tuple(dims) == self.dims else self.apply(Reshape(allowzero=True), self.ints(dims))

    def transpose(self, perm: Sequence[int]) -> "Value":
        """With the axes in another order."""
        return self if list(perm) == list(range(self.rank)) else self.apply(Transpose(perm=tuple(perm)))

    def expand(self, dims: Sequence[int]) -> "Value":
        """Broadcast to a shape."""
        return self if tuple(dims) == self.dims else self.apply(Expand(), self.ints(dims))

    def sum(self, axes: Sequence[int], *, keepdims: bool = True) -> "Value":
        """The sum over some axes; itself over none."""
        return self.apply(ReduceSum(keepdims=keepdims), self.ints(axes)) if axes else self

    def like(self, other: "Value") -> "Value":
        """Summed to the shape of a value that was broadcast to this one's: the way back from broadcasting."""
        lead = self.rank - other.rank
        stretched = [lead + i for i, d in enumerate(other.dims) if d == 1 and self.dims[lead + i] != 1]
        return self.sum([*range(lead), *stretched]).reshape(other.dims)


def select(condition: Value, yes: Value | float, no: Value | float) -> Value:
    """`yes` where the condition holds, else `no`. One of them is a value."""
    like = yes if isinstance(yes, Value) else no
    assert isinstance(like, Value)
    pair = [v if isinstance(v, Value) else like.constant(v) for v in (yes, no)]
    return condition.apply(Where(), *pair)


def ones_like(value: Value) -> Value:
    """Ones in the value's type and shape."""
    return value.constant(np.ones((), value.dtype.numpy)).expand(value.dims)
