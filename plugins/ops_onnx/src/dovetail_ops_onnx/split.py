"""Split: https://onnx.ai/onnx/operators/onnx__Split.html."""

from collections.abc import Sequence
from itertools import accumulate

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement, check_axis, ints, known_ints
from dovetail_ops_onnx._types import BASIC, Array, Types


class Split(Movement):
    """The input cut along `axis` into parts of the sizes `split`, or into `num_outputs` parts, the last perhaps smaller."""

    since = 18
    inputs = ("input: T", "split?: int64")
    outputs = ("outputs*: T",)
    propagates_nan = True
    types = {"T": BASIC}

    axis: int = 0
    num_outputs: int | None = None

    def __post_init__(self) -> None:
        if self.num_outputs is not None and self.num_outputs < 1:
            raise OperatorError(f"attribute 'num_outputs' is {self.num_outputs}; accepted: 1 or more")

    def infer(self, x: TensorType, split: TensorType | None = None) -> tuple[TensorType, ...]:
        """The input's type, once for each part."""
        axis = check_axis(self.axis, x.rank)
        sizes = self._sizes(x.dims[axis], None if split is None else known_ints(split, "split"))
        return tuple(x.with_shape((*x.dims[:axis], size, *x.dims[axis + 1 :])) for size in sizes)

    def reference(self, x: Array, split: Array | None = None) -> tuple[Array, ...]:
        """Views of the parts."""
        axis = check_axis(self.axis, x.ndim)
        sizes = self._sizes(x.shape[axis], None if split is None else ints(split, "split"))
        lead = (slice(None),) * axis
        return tuple([x[(*lead, slice(end - size, end))] for size, end in zip(sizes, accumulate(sizes), strict=True)])

    def is_identity(self, inputs: Types, outputs: Sequence[TensorType]) -> bool:
        """True for a single part."""
        return inputs[0] == outputs[0]

    def _sizes(self, size: int, split: tuple[int, ...] | None) -> tuple[int, ...]:
        if split is not None:
            self._check_exclusive()
            if any(part < 0 for part in split) or sum(split) != size:
                raise ShapeError(f"split is {list(split)}; accepted: sizes of 0 or more with the sum {size}")
            return split
        if self.num_outputs is None:
            raise OperatorError("neither the input 'split' nor the attribute 'num_outputs' is given; accepted: one of them")
        return self._equal_parts(size, self.num_outputs)

    def _check_exclusive(self) -> None:
        if self.num_outputs is not None:
            raise OperatorError("the input 'split' and the attribute 'num_outputs' are both given; accepted: one of them")

    def _equal_parts(self, size: int, count: int) -> tuple[int, ...]:
        part = -(-size // count)
        if part * (count - 1) > size:
            raise ShapeError(f"a size of {size} cannot be split into {count} parts of {part} and a smaller last one")
        return (*(part,) * (count - 1), size - part * (count - 1))


class Split_13(Split):
    """Split into as many equal parts as the node has outputs, unless `split` is given."""

    since = 13
    output_count = "num_outputs"
    propagates_nan = True

    def _check_exclusive(self) -> None:
        """num_outputs is the number of outputs here, and says nothing new beside split."""

    def _equal_parts(self, size: int, count: int) -> tuple[int, ...]:
        if size % count:
            raise ShapeError(f"a size of {size} cannot be split into {count} equal parts", hint="give the sizes as 'split'")
        return (size // count,) * count


class Split_2(Split_13):
    """Split with the sizes as an attribute."""

    since = 2
    legacy_attributes = {"split": "split"}
    propagates_nan = True
