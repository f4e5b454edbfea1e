"""Beam searches: the tokens of each beam from the steps that were taken."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["GatherTree"]

Array = NDArray[Any]


class GatherTree(Operator):
    """The tokens of each beam [steps, batch, beams], from those of each step and the beams that they continue.

    A beam of a batch begins at its last step, `max_seq_len` [batch], and is followed back to the first. What is behind that
    step, or behind the first end token, is the end token.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("step_ids: T", "parent_idx: T", "max_seq_len: T", "end_token: T")
    outputs = ("final_idx: T",)
    types = {"T": frozenset({DType.INT32, DType.INT64, DType.FLOAT16, DType.FLOAT32})}

    def infer(self, step_ids: TensorType, parent_idx: TensorType, max_seq_len: TensorType, end_token: TensorType) -> TensorType:
        """The type of the tokens."""
        fits = step_ids.rank == 3 and parent_idx.dims == step_ids.dims and max_seq_len.dims == step_ids.dims[1:2]
        if not fits or end_token.size != 1:
            shown = f"'step_ids' is {step_ids}, 'parent_idx' {parent_idx}, 'max_seq_len' {max_seq_len}, 'end_token' {end_token}"
            raise ShapeError(f"{shown}; accepted: [steps, batch, beams] twice, [batch], one element")
        return step_ids.with_shape(step_ids.dims)

    def reference(self, step_ids: Array, parent_idx: Array, max_seq_len: Array, end_token: Array) -> Array:
        """All beams together, from the last step to the first. Raises `OperatorError` for a parent outside the beams."""
        steps, batch, beams = step_ids.shape
        end = end_token.reshape(())
        lengths = np.clip(max_seq_len.astype(np.int64), 0, steps)[:, None]
        place = np.tile(np.arange(beams), (batch, 1))
        found = np.full_like(step_ids, end)
        for step in range(steps - 1, -1, -1):
            inside = np.broadcast_to(step < lengths, place.shape)
            if ((place < 0) | (place >= beams))[inside].any():
                raise OperatorError(f"input 'parent_idx' at step {step + 1} names a beam outside 0 to {beams - 1}")
            found[step] = np.where(inside, np.take_along_axis(step_ids[step], np.where(inside, place, 0), 1), end)
            place = np.where(inside, np.take_along_axis(parent_idx[step].astype(np.int64), np.where(inside, place, 0), 1), place)
        ended = np.logical_or.accumulate(found == end, axis=0)
        return np.where(ended, end, found)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """One beam that changes its place, one that ends early."""
        from dovetail_frontend_openvino.operators.cases import gather_tree  # here, because only tests need cases

        return gather_tree(rng)
