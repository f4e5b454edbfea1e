"""Support vectors: kernels, and probabilities for many classes from those of pairs."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array, product

__all__ = ["Kernel", "check_kernel", "coupled"]

_KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")


def check_kernel(op: Any) -> None:
    """Raise `OperatorError` for another value of `kernel_type`, or parameters that are not three."""
    if op.kernel_type not in _KERNELS or len(op.kernel_params) not in (0, 3):
        given = f"'kernel_type' {op.kernel_type!r}, 'kernel_params' {op.kernel_params}"
        raise OperatorError(f"attributes {given}; accepted: {', '.join(_KERNELS)}; gamma, coef0 and degree")


@dataclass(frozen=True)
class Kernel:
    """k(x, v) for support vectors [vectors, features]."""

    vectors: Array
    kind: str
    params: tuple[float, ...]

    def __call__(self, x: Array) -> Array:
        """For every sample and vector: [samples, vectors]."""
        gamma, shift, degree = self.params or (0.0, 0.0, 0.0)
        if self.kind == "RBF":
            found = product(x * -2, self.vectors.T)
            found += (x * x).sum(axis=1, keepdims=True)
            found += self._squares
            np.maximum(found, 0, out=found)
            found *= -gamma
            return np.exp(found, out=found)
        found = product(x, self.vectors.T)
        if self.kind == "POLY":
            base = gamma * found + shift
            # `power` takes 40 times as long as a product.
            return math.prod([base] * (int(degree) - 1), start=base) if degree in (1, 2, 3, 4) else np.power(base, degree)
        return np.tanh(gamma * found + shift) if self.kind == "SIGMOID" else found

    @cached_property
    def _squares(self) -> Array:
        return np.asarray((self.vectors * self.vectors).sum(axis=1))


def coupled(pairs: Array) -> Array:
    """Probabilities [samples, k] from pairs [samples, k, k]: pairs[:, i, j] is that of i against j.

    The second method of Wu, Lin and Weng (2004), as in LIBSVM: at most 100 rounds, until nothing changes by 0.005 / k.
    """
    count, k = pairs.shape[:2]
    q = -np.transpose(pairs, (0, 2, 1)) * pairs
    off = pairs * (1 - np.eye(k))
    q[:, range(k), range(k)] = (off * off).sum(axis=1)
    p = np.full((count, k), 1 / k)
    going = np.arange(count)
    for _ in range(100):
        qp = np.einsum("nij,nj->ni", q[going], p[going])
        total = (p[going] * qp).sum(axis=1)
        far = np.abs(qp - total[:, None]).max(axis=1, initial=0) >= 0.005 / k
        going, qp, total = going[far], qp[far], total[far]
        if not going.size:
            break
        p[going] = _round(q[going], p[going], qp, total)
    return p


def _round(q: Array, p: Array, qp: Array, total: Array) -> Array:
    """Each probability in turn brought nearer to the optimum."""
    p = p.copy()
    for t in range(p.shape[1]):
        own = q[:, t, t]
        change = (total - qp[:, t]) / own
        p[:, t] += change
        total = (total + change * (change * own + 2 * qp[:, t])) / (1 + change) ** 2
        qp = (qp + change[:, None] * q[:, t]) / (1 + change)[:, None]
        p /= (1 + change)[:, None]
    return p
