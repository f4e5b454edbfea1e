"""Cases of MoE and QMoE: token by token and number by number in float64."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.mixtures import MoE, QMoE

Array = NDArray[Any]
HIDDEN, INNER, EXPERTS = 8, 4, 3


def mo_e(rng: np.random.Generator) -> Iterator[Case]:
    """Activations, a third layer, both forms of fused gates, and two experts a token."""
    x, probs = _floats(rng, 2, 3, HIDDEN), _floats(rng, 6, EXPERTS)
    for kind, fusion, third in (
        ("relu", 0, True),
        ("gelu", 0, False),
        ("swiglu", 0, True),
        ("swiglu", 1, False),
        ("swiglu", 2, False),
    ):
        op = MoE(k=2, activation_type=kind, swiglu_fusion=fusion, swiglu_limit=0.9, activation_alpha=1.5, activation_beta=0.5)
        rows = INNER * (2 if fusion else 1)
        layers: list[Any] = [_floats(rng, EXPERTS, rows, HIDDEN), _floats(rng, EXPERTS, rows)]
        layers += [_floats(rng, EXPERTS, HIDDEN, INNER), _floats(rng, EXPERTS, HIDDEN)]
        layers += [_floats(rng, EXPERTS, INNER, HIDDEN), _floats(rng, EXPERTS, INNER)] if third else []
        yield _case(f"{kind}_{fusion}", op, (x, probs, *layers), _mixture(op, x, probs, layers))


def q_mo_e(rng: np.random.Generator) -> Iterator[Case]:
    """Bits, blocks, zero points, and other weights of the experts."""
    x, probs = _floats(rng, 5, HIDDEN), _floats(rng, 5, EXPERTS)
    for bits, block, pointed in ((2, 0, True), (4, 4, True), (4, 0, False), (8, 4, False), (8, 0, True)):
        op = QMoE(k=2, activation_type="silu", expert_weight_bits=bits, block_size=block, normalize_routing_weights=True)
        given, layers = list[Any](), list[Any]()
        points = list[Any]()
        for out, size in ((INNER, HIDDEN), (HIDDEN, INNER)):
            dims = (EXPERTS, out, *((size // block,) if block else ()))
            packed = rng.integers(0, 256, (EXPERTS, out, size * bits // 8)).astype(np.uint8)
            scales = rng.uniform(0.1, 1, dims).astype(np.float32) / 2**bits
            zeros = rng.integers(0, 256, (*dims[:-1], -(-dims[-1] * bits // 8))).astype(np.uint8) if pointed else None
            given += [packed, scales, None]
            layers += [_unpacked(packed, scales, zeros, bits), None]
            points.append(zeros)
        router = None if pointed else rng.uniform(0, 1, (5, EXPERTS)).astype(np.float32)
        want = _mixture(op, x, probs, layers, router)
        yield _case(f"bits_{bits}_{block}", op, (x, probs, *given, None, None, None, *points, None, router), want)


def _floats(rng: np.random.Generator, *shape: int) -> Array:
    return rng.standard_normal(shape).astype(np.float32)


def _case(name: str, op: MoE, inputs: tuple[Any, ...], want: Array) -> Case:
    return Case(name, op, inputs, (want.astype(np.float32),), constants=tuple(range(2, 14)), rtol=1e-4, atol=1e-4)


def _mixture(op: MoE, x: Array, probs: Array, layers: list[Any], router: Array | None = None) -> Array:
    fc1, bias1, fc2, bias2, fc3, bias3 = (*layers, None, None)[:6]
    y = np.zeros((len(probs), HIDDEN))
    for token, row in enumerate(x.reshape(len(probs), HIDDEN).astype(np.float64)):
        best = sorted(range(EXPERTS), key=lambda expert: -float(probs[token, expert]))[: op.k]
        shares = [math.exp(float(p)) for p in probs[token]] if router is None else [float(p) for p in router[token]]
        whole = sum(shares[expert] for expert in best) if op.normalize_routing_weights else sum(shares)
        for expert in best:
            inner = fc1[expert].astype(np.float64) @ row + (0 if bias1 is None else bias1[expert])
            third = None if fc3 is None else fc3[expert].astype(np.float64) @ row + bias3[expert]
            inner = np.array([_activated(op, i, inner, third) for i in range(INNER)])
            y[token] += shares[expert] / whole * (fc2[expert] @ inner + (0 if bias2 is None else bias2[expert]))
    return y.reshape(x.shape)


def _activated(op: MoE, i: int, inner: Array, third: Array | None) -> float:
    if op.activation_type == "swiglu":
        gate, value = {1: (2 * i, 2 * i + 1), 2: (i, INNER + i), 0: (i, i)}[op.swiglu_fusion]
        g = min(float(inner[gate]), op.swiglu_limit)
        linear = float((inner if third is None else third)[value])
        linear = max(-op.swiglu_limit, min(linear, op.swiglu_limit))
        return g / (1 + math.exp(-op.activation_alpha * g)) * (linear + op.activation_beta)
    x = float(inner[i])
    gelu = 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    y = {"relu": max(x, 0.0), "gelu": gelu, "silu": x / (1 + math.exp(-x))}[op.activation_type]
    return y if third is None else y * float(third[i])


def _unpacked(packed: Array, scales: Array, zeros: Array | None, bits: int) -> Array:
    per, size = 8 // bits, packed.shape[2] * 8 // bits
    y = np.zeros((*packed.shape[:2], size))
    for e, row, column in np.ndindex(*y.shape):
        place = (e, row) if scales.ndim == 2 else (e, row, column // (size // scales.shape[2]))
        at = place[-1]
        zero = 2 ** (bits - 1) if zeros is None else int(zeros[(*place[:-1], at // per)]) >> at % per * bits & 2**bits - 1
        number = int(packed[e, row, column // per]) >> column % per * bits & 2**bits - 1
        y[e, row, column] = (number - zero) * float(scales[place])
    return y
