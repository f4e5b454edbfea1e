"""Einsum: sums of products by Einstein's convention. https://onnx.ai/onnx/operators/onnx__Einsum.html"""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from dovetail.op import NUMERIC, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


class Einsum(Operator):
    """Output[labels after ->] = sum over all other labels of the product of the inputs, as `numpy.einsum`. Integers wrap.

    Without `->`, the output has the labels that occur once, in alphabetic order, after the axes that `...` stands for.
    """

    since = 12
    inputs = ("Inputs*: T",)
    outputs = ("Output: T",)
    types = {"T": NUMERIC}
    equation: str

    def __post_init__(self) -> None:
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        if not all(map(_is_term, (*left.split(","), *([right] if arrow else [])))):
            raise OperatorError(
                f"attribute 'equation' is {self.equation!r:.200}; accepted: such as 'ij,jk->ik' or '...ij->...ji'"
            )

    def infer(self, *inputs: TensorType) -> TensorType:
        terms, output = self._parsed()
        if len(terms) != len(inputs):
            raise OperatorError(f"the equation {self.equation!r} has {len(terms)} terms for {len(inputs)} inputs")
        sizes = self._sizes(terms, inputs)
        ellipses = [t.rank - len(term.replace("...", "")) for term, t in zip(terms, inputs, strict=True) if "..." in term]
        labels = _expanded(output, max(ellipses, default=0))
        unknown = [label for label in labels if label not in sizes]
        if unknown or len(set(labels)) != len(labels):
            raise OperatorError(f"the output of {self.equation!r} names a label twice or one that no input has")
        return inputs[0].with_shape(tuple(sizes[label] for label in labels))

    def reference(self, *inputs: Array) -> Array:
        arrays = [wide(a) for a in inputs]
        with np.errstate(all="ignore"):
            # Two at a time by matrix products where there are more: the plain loop visits every combination of labels.
            y = np.einsum(self.equation.replace(" ", ""), *arrays, optimize=len(arrays) > 1)
        return rounded(np.array(y), inputs[0].dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        present = [t for t in inputs if t is not None]
        return len(present) * math.prod(self._sizes(self._parsed()[0], present).values())

    def labels(self, inputs: Sequence[TensorType]) -> list[list[str]]:
        """The labels of the axes of each input, then of the output; those that `...` stands for are -1, -2, ... from the last."""
        terms, output = self._parsed()
        counts = [t.rank - len(term.replace("...", "")) for term, t in zip(terms, inputs, strict=True)]
        found = [_expanded(term, count) for term, count in zip(terms, counts, strict=True)]
        return [*found, _expanded(output, max((n for n, term in zip(counts, terms, strict=True) if "..." in term), default=0))]

    def _parsed(self) -> tuple[list[str], str]:
        left, arrow, right = self.equation.replace(" ", "").partition("->")
        if not arrow:
            counts = Counter(left.replace(",", "").replace("...", ""))
            right = ("..." if "..." in left else "") + "".join(sorted(label for label, n in counts.items() if n == 1))
        return left.split(","), right

    def _sizes(self, terms: Sequence[str], inputs: Sequence[TensorType]) -> dict[str, int]:
        """Label -> size; the axes of `...` are labelled -1, -2, ... from the last."""
        sizes: dict[str, int] = {}
        for term, t in zip(terms, inputs, strict=True):
            labels = _expanded(term, t.rank - len(term.replace("...", "")))
            if len(labels) != t.rank:
                raise ShapeError(f"the term {term!r} of {self.equation!r} has {len(labels)} labels for the input {t}")
            own: dict[str, int] = {}
            for label, size in zip(labels, t.dims, strict=True):
                if own.setdefault(label, size) != size:  # a diagonal does not broadcast
                    raise ShapeError(
                        f"the label {label!r} of the term {term!r} has the sizes {own[label]} and {size} in the input {t}"
                    )
                known = sizes.setdefault(label, size)
                if known != size and 1 not in (known, size):
                    raise ShapeError(f"the label {label!r} of {self.equation!r} has the sizes {known} and {size}")
                sizes[label] = size if known == 1 else known
        return sizes


def _is_term(term: str) -> bool:
    """True for letters with `...` at most once among them. Linear, which a regular expression with two runs of letters is not."""
    labels = term.replace("...", "", 1)
    return not labels or (labels.isascii() and labels.isalpha())


def _expanded(term: str, ellipsis: int) -> list[str]:
    before, dots, after = term.partition("...")
    return [*before, *(str(i - ellipsis) for i in range(ellipsis) if dots), *after]
