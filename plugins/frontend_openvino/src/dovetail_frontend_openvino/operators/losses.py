"""Losses of sequences whose alignment is not known."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["CTCLoss"]

Array = NDArray[Any]


class CTCLoss(Operator):
    """Of each sequence the negative logarithm [N] of the probability of its labels, over all alignments.

    `logits` [N, T, C] up to `logit_length` [N], `labels` [N, T] up to `label_length` [N]. The blank is the last class by
    default. Without `ctc_merge_repeated` each step that is not blank is a label of its own.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("logits: T", "logit_length: I", "labels: I", "label_length: I", "blank_index?: I")
    outputs = ("loss: T",)
    types = {
        "T": frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64}),
        "I": frozenset({DType.INT32, DType.INT64}),
    }

    preprocess_collapse_repeated: bool = False
    ctc_merge_repeated: bool = True
    unique: bool = False

    def infer(
        self,
        logits: TensorType,
        logit_length: TensorType,
        labels: TensorType,
        label_length: TensorType,
        blank_index: TensorType | None,
    ) -> TensorType:
        """[N]."""
        batch = logits.dims[:1]
        fits = logits.rank == 3 and labels.dims == logits.dims[:2] and logit_length.dims == label_length.dims == batch
        if not fits or (blank_index is not None and blank_index.size != 1):
            shown = f"'logits' is {logits}, 'labels' {labels}, 'logit_length' {logit_length}, 'label_length' {label_length}"
            raise ShapeError(f"{shown}; accepted: [N, T, C], [N, T], [N], [N], and one element as 'blank_index'")
        return logits.with_shape(batch)

    def reference(
        self, logits: Array, logit_length: Array, labels: Array, label_length: Array, blank_index: Array | None
    ) -> Array:
        """By the forward algorithm in float64. Raises `OperatorError` for lengths and labels out of range."""
        steps, classes = logits.shape[1:]
        blank = classes - 1 if blank_index is None else int(blank_index.reshape(()))
        if not 0 <= blank < classes:
            raise OperatorError(f"input 'blank_index' is {blank}; accepted: 0 to {classes - 1}")
        if not ((label_length >= 0) & (label_length <= logit_length) & (logit_length <= steps)).all():
            raise OperatorError(f"'label_length' and 'logit_length' are not 0 to {steps}, the labels no more than the logits")
        wanted, counts = self._wanted(labels, label_length, blank)
        if ((wanted < 0) | (wanted >= classes)).any():
            raise OperatorError(f"input 'labels' has labels outside 0 to {classes - 1}")
        with np.errstate(all="ignore"):
            wide = logits.astype(np.float64)
            shifted = wide - wide.max(-1, keepdims=True, initial=-np.inf)
            scores = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
            return np.asarray(self._forward(scores, logit_length, wanted, counts).astype(logits.dtype))

    def _wanted(self, labels: Array, lengths: Array, blank: int) -> tuple[Array, Array]:
        """The labels with a blank before, between and behind them: [N, 2 * most + 1]; and how many there are of each sequence."""
        rows = [row[:length].tolist() for row, length in zip(labels, lengths.tolist(), strict=True)]
        if self.preprocess_collapse_repeated:
            rows = [[label for i, label in enumerate(row) if not i or label != row[i - 1]] for row in rows]
        if self.unique:
            rows = [list(dict.fromkeys(row)) for row in rows]
        found = np.full((len(rows), 2 * max(map(len, rows), default=0) + 1), blank)
        for row, own in zip(found, rows, strict=True):
            row[1 : 2 * len(own) : 2] = own
        return found, np.array([len(row) for row in rows], np.int64)

    def _forward(self, scores: Array, lengths: Array, wanted: Array, counts: Array) -> Array:
        """All sequences together, step by step: the logarithm of the probability to be at each of the wanted labels."""
        batch, width = wanted.shape
        is_label = np.arange(width) % 2 == 1
        skips = np.broadcast_to(is_label, wanted.shape).copy()
        if self.ctc_merge_repeated:
            skips[:, 2:] &= wanted[:, 2:] != wanted[:, :-2]
        alpha = np.full((batch, width + 2), -np.inf)
        alpha[:, 1] = 0  # before the first step: the first blank or label may follow
        for step in range(scores.shape[1]):
            stayed = alpha[:, 2:] if self.ctc_merge_repeated else np.where(is_label, -np.inf, alpha[:, 2:])
            reached = np.logaddexp(stayed, alpha[:, 1:-1])
            reached = np.logaddexp(reached, np.where(skips, alpha[:, :-2], -np.inf))
            moved = np.full_like(alpha, -np.inf)
            moved[:, 2:] = reached + np.take_along_axis(scores[:, step], wanted, 1)
            alpha = np.where((step < lengths)[:, None], moved, alpha)
        rows = np.arange(batch)
        last = np.where(counts > 0, alpha[rows, 2 * counts + 1], -np.inf)
        final = np.logaddexp(alpha[rows, 2 * counts + 2], last)
        return -np.where(lengths > 0, final, np.where(counts > 0, -np.inf, 0))

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Two classes that are equally likely: alignments can be counted."""
        from dovetail_frontend_openvino.operators.cases import ctc_loss  # here, because only tests need cases

        return ctc_loss(rng)
