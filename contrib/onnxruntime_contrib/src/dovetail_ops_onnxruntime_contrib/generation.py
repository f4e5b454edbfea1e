"""Steps of text generation."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator

__all__ = ["NGramRepeatBlock"]

Array = NDArray[Any]


class NGramRepeatBlock(MicrosoftOperator):
    """Scores [batch, vocabulary], -inf for tokens that would repeat `ngram_size` tokens of `input_ids` [batch, sequence]."""

    inputs = ("input_ids: int64", "scores: float32")
    outputs = ("scores_out: float32",)
    ngram_size: int

    def __post_init__(self) -> None:
        if self.ngram_size < 1:
            raise OperatorError(f"attribute 'ngram_size' is {self.ngram_size}; accepted: 1 or more")

    def infer(self, input_ids: TensorType, scores: TensorType) -> TensorType:
        """The type of the scores."""
        if input_ids.rank != 2 or scores.rank != 2 or input_ids.dims[0] != scores.dims[0]:
            raise ShapeError(f"'input_ids' are {input_ids}, 'scores' {scores}; accepted: [batch, sequence], [batch, vocabulary]")
        return scores.with_shape(scores.dims)

    def reference(self, input_ids: Array, scores: Array) -> Array:
        """The last tokens compared with all runs of as many."""
        y, before = scores.copy(), self.ngram_size - 1
        if input_ids.shape[1] < self.ngram_size:
            return y
        grams = np.lib.stride_tricks.sliding_window_view(input_ids, self.ngram_size, axis=1)
        last = input_ids[:, None, input_ids.shape[1] - before :]
        row, place = np.nonzero((grams[..., :before] == last).all(-1))
        token = grams[row, place, before]
        if ((token < 0) | (token >= scores.shape[1])).any():
            raise OperatorError(f"input 'input_ids' has tokens outside 0 to {scores.shape[1] - 1}")
        y[row, token] = -np.inf
        return y
