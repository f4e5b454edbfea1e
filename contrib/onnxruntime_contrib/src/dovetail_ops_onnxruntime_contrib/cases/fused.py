"""Cases of products and convolutions with what is fused to them: sums of products in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.fused import FusedConv, FusedGemm, FusedMatMul, TransposeMatMul


def fused_mat_mul(rng: np.random.Generator) -> Iterator[Case]:
    """Transposes, a factor, a batch inside."""
    a, b = rng.standard_normal((2, 3, 7)).astype(np.float32), rng.standard_normal((2, 7, 5)).astype(np.float32)
    want = np.einsum("bmk,bkn->bmn", a.astype(np.float64), b.astype(np.float64))
    y = want.astype(np.float32)
    yield Case("plain", FusedMatMul(), (a, b), (y,))
    swapped = np.ascontiguousarray(a.swapaxes(1, 2)), np.ascontiguousarray(b.swapaxes(1, 2))
    yield Case("transposed", FusedMatMul(transA=True, transB=True, alpha=0.5), swapped, ((want / 2).astype(np.float32),))
    moved = tuple(np.ascontiguousarray(x.transpose(1, 0, 2)) for x in (a, b))
    yield Case("batch_inside", FusedMatMul(transBatchA=True, transBatchB=True), moved, (y,))
    yield Case("batch_0", FusedMatMul(), (a[:0], b[:0]), (y[:0],))


def transpose_mat_mul(rng: np.random.Generator) -> Iterator[Case]:
    """One side transposed."""
    a, b = rng.standard_normal((2, 7, 3)).astype(np.float32), rng.standard_normal((7, 5)).astype(np.float32)
    want = np.einsum("bkm,kn->bmn", a.astype(np.float64), b.astype(np.float64)) / 4
    yield Case("transposed", TransposeMatMul(transA=True, alpha=0.25), (a, b), (want.astype(np.float32),))


def fused_gemm(rng: np.random.Generator) -> Iterator[Case]:
    """Each activation; transposes and factors."""
    a, b, c = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 3), (5, 7), (5,)))
    y = np.einsum("km,nk->mn", a.astype(np.float64), b.astype(np.float64)) * 0.5 + 2 * c
    activations: tuple[tuple[str, dict[str, Any], Any], ...] = (
        ("", {}, y),
        ("Relu", {}, np.maximum(y, 0)),
        ("Tanh", {}, np.tanh(y)),
        ("Sigmoid", {}, 1 / (1 + np.exp(-y))),
        ("Softplus", {}, np.log1p(np.exp(y))),
        ("Softsign", {}, y / (1 + np.abs(y))),
        ("LeakyRelu", {"activation_alpha": 0.25}, np.where(y < 0, 0.25 * y, y)),
        ("Elu", {"activation_alpha": 0.25}, np.where(y < 0, 0.25 * np.expm1(y), y)),
        ("Selu", {"activation_alpha": 0.25, "activation_gamma": 2.0}, 2 * np.where(y < 0, 0.25 * np.expm1(y), y)),
        ("HardSigmoid", {"activation_alpha": 0.25, "activation_beta": 0.5}, np.clip(0.25 * y + 0.5, 0, 1)),
        ("ThresholdedRelu", {"activation_alpha": 0.25}, np.where(y > 0.25, y, 0)),
    )
    for name, params, want in activations:
        op = FusedGemm(activation=name, alpha=0.5, beta=2.0, transA=True, transB=True, **params)
        yield Case(name or "none", op, (a, b, c), (want.astype(np.float32),), rtol=1e-4, atol=1e-5)


def fused_conv(rng: np.random.Generator) -> Iterator[Case]:
    """A convolution of one element, with each activation, with a sum."""
    x, w = rng.standard_normal((2, 3, 4, 5)).astype(np.float32), rng.standard_normal((4, 3, 1, 1)).astype(np.float32)
    b, z = rng.standard_normal(4).astype(np.float32), rng.standard_normal((2, 4, 4, 5)).astype(np.float32)
    y = np.einsum("ncyx,oc->noyx", x.astype(np.float64), w[:, :, 0, 0].astype(np.float64)) + b[:, None, None]
    activations = (
        ("", (), y),
        ("Relu", (), np.maximum(y, 0)),
        ("Tanh", (), np.tanh(y)),
        ("Sigmoid", (), 1 / (1 + np.exp(-y))),
        ("LeakyRelu", (0.25,), np.where(y < 0, 0.25 * y, y)),
        ("Clip", (-0.5, 1.0), np.clip(y, -0.5, 1)),
        ("HardSigmoid", (0.25, 0.5), np.clip(0.25 * y + 0.5, 0, 1)),
    )
    for name, params, want in activations:
        op = FusedConv(activation=name, activation_params=params)
        yield Case(name or "none", op, (x, w, b), (want.astype(np.float32),), rtol=1e-4, atol=1e-5)
    want = np.maximum(y + z, 0).astype(np.float32)
    yield Case("sum", FusedConv(activation="Relu"), (x, w, b, z), (want,), rtol=1e-4, atol=1e-5)
