"""Products of matrices and tensors."""

import itertools
import string
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from dovetail.op import OperatorError
from dovetail_ops_onnx.einsum import Einsum
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx_training.values import Value

__all__ = ["COMPOSITIONS", "DERIVATIVES"]


def _mat_mul(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dA = dY B', dB = A' dY, summed where they were broadcast."""
    a, b = inputs
    rows = a.reshape((1, *a.dims)) if a.rank == 1 else a
    columns = b.reshape((*b.dims, 1)) if b.rank == 1 else b
    batch = outputs[0].dims[: outputs[0].rank - (a.rank > 1) - (b.rank > 1)]
    dy = gradients[0].reshape((*batch, rows.dims[-2], columns.dims[-1]))
    da = dy.apply(MatMul(), _transposed(columns)).like(rows)
    db = _transposed(rows).apply(MatMul(), dy).like(columns)
    return da.reshape(a.dims), db.reshape(b.dims)


def _transposed(x: Value) -> Value:
    return x.transpose([*range(x.rank - 2), x.rank - 1, x.rank - 2])


def _einsum(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = the Einsum of dY and the other inputs with the labels of X; the same along labels that only X has."""
    terms, output = _labels(op.equation.replace(" ", ""), [x.rank for x in inputs])
    found = []
    for i, (x, own) in enumerate(zip(inputs, terms, strict=True)):
        if len(set(own)) < len(own):
            raise OperatorError(f"Einsum {op.equation!r} has a label twice in a term; accepted for derivatives: once")
        others = [term for j, term in enumerate(terms) if j != i]
        kept = [label for label in own if label in set(output).union(*others)]
        equation = f"{','.join([output, *others])}->{''.join(kept)}"
        dx = gradients[0].apply(Einsum(equation=equation), *(other for j, other in enumerate(inputs) if j != i))
        sizes = dict(zip(kept, dx.dims, strict=True))
        dx = dx.reshape([sizes.get(label, 1) for label in own])
        stretched = [axis for axis, size in enumerate(x.dims) if size == 1 and dx.dims[axis] != 1]
        found.append(dx.sum(stretched).expand(x.dims))
    return tuple(found)


def _labels(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """The terms and the output with letters for all axes, those of `...` included."""
    left, arrow, output = equation.partition("->")
    terms = left.split(",")
    if not arrow:
        counts = Counter(left.replace(",", "").replace("...", ""))
        output = ("..." if "..." in left else "") + "".join(sorted(label for label, n in counts.items() if n == 1))
    hidden = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term]
    unused = itertools.islice((c for c in string.ascii_letters if c not in equation), max(hidden, default=0))
    letters = "".join(unused)
    counts_of = iter(hidden)
    written = [term.replace("...", letters[len(letters) - next(counts_of) :]) if "..." in term else term for term in terms]
    return written, output.replace("...", letters)


DERIVATIVES: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {"Einsum": _einsum, "MatMul": _mat_mul}


def _gemm(op: Any, inputs: Any) -> Any:
    a, b, c = (*inputs, None)[:3]
    a = a.transpose((1, 0)) if op.transA else a
    b = b.transpose((1, 0)) if op.transB else b
    y = a.apply(MatMul(), b)
    y = y if op.alpha == 1 else y * op.alpha
    return y if c is None else y + (c if op.beta == 1 else c * op.beta)


COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {"Gemm": _gemm}
