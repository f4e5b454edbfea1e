"""Mixtures of experts against onnxruntime, and what it has on GPUs only against plain loops in the cases of the pack."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import OperatorError
from dovetail_ops_onnxruntime_contrib.mixtures import MoE, QMoE

HIDDEN, INNER, EXPERTS = 32, 48, 5
SWIGLU = {"swiglu_fusion": 1, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 0.5}


def _floats(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32) / 4


@pytest.mark.parametrize("kind", ["relu", "gelu", "silu", "identity", "swiglu"])
@pytest.mark.parametrize("normalized", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_mixture(agree: Any, rng: np.random.Generator, kind: str, normalized: int, bias: bool) -> None:
    rows = INNER * (1 + (kind == "swiglu"))
    biases = [_floats(rng, EXPERTS, rows), _floats(rng, EXPERTS, HIDDEN)] if bias else [None, None]
    weights = [_floats(rng, EXPERTS, rows, HIDDEN), biases[0], _floats(rng, EXPERTS, HIDDEN, INNER), biases[1]]
    arrays = [_floats(rng, 2, 7, HIDDEN), _floats(rng, 14, EXPERTS) * 8, *weights]
    attributes = {
        "k": 2,
        "activation_type": kind,
        "normalize_routing_weights": normalized,
        **(SWIGLU if kind == "swiglu" else {}),
    }
    # onnxruntime's GELU is off by up to 2e-4 here.
    agree("MoE", arrays, constants=range(2, len(arrays)), tolerance=1e-3 if kind == "gelu" else 1e-5, **attributes)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("router", [True, False])
def test_mixture_of_few_bits(agree: Any, rng: Any, bits: int, block: int, zeros: bool, router: bool) -> None:
    pack, rows = 8 // bits, INNER * 2

    def layer(out: int, size: int) -> list[Any]:
        blocks = (size // block,) if block else ()
        packed = rng.integers(0, 256, (EXPERTS, out, size // pack)).astype(np.uint8)
        scales = rng.uniform(0.01, 0.2, (EXPERTS, out, *blocks)).astype(np.float32) * 16 / 2**bits
        dims = (EXPERTS, out, *blocks)
        points = rng.integers(0, 256, (*dims[:-1], -(-dims[-1] // pack))).astype(np.uint8) if zeros else None
        return [packed, scales, _floats(rng, EXPERTS, out), points]

    (*first, zero1), (*second, zero2) = layer(rows, HIDDEN), layer(HIDDEN, INNER)
    arrays = [_floats(rng, 9, HIDDEN), _floats(rng, 9, EXPERTS) * 8, *first, *second, None, None, None, zero1, zero2, None]
    attributes = {"k": 3, "activation_type": "swiglu", "expert_weight_bits": bits, **SWIGLU}
    if router:
        arrays.append(rng.uniform(0, 1, (9, EXPERTS)).astype(np.float32))
    else:  # onnxruntime's QMoE takes the attribute for set on CPUs
        attributes["normalize_routing_weights"] = 1
    if block:
        attributes["block_size"] = block
    constants = [i for i in range(2, 14) if i < len(arrays)]
    # onnxruntime rounds the tokens to 8 bits where weights have them.
    agree("QMoE", arrays, constants=constants, tolerance=1e-3 if bits == 4 else 0.1, **attributes)


def test_halves_and_no_tokens(core: dovetail.Core, rng: np.random.Generator) -> None:
    weights = [_floats(rng, EXPERTS, INNER, HIDDEN), None, _floats(rng, EXPERTS, HIDDEN, INNER)]
    op, x, probs = MoE(k=2), _floats(rng, 6, HIDDEN), _floats(rng, 6, EXPERTS)
    want = op.reference(x, probs, *weights)
    halves = [None if a is None else a.astype(np.float16) for a in (x, probs, *weights)]
    found = op.reference(*halves)  # type: ignore[arg-type]  # x and probs are given
    assert found.dtype == np.float16
    np.testing.assert_allclose(found.astype(np.float32), want, rtol=0.02, atol=0.02)
    assert op.reference(x[:0], probs[:0], *weights).shape == (0, HIDDEN)


def test_what_is_not_taken_is_refused() -> None:
    with pytest.raises(OperatorError, match="'use_sparse_mixer' True"):
        MoE(use_sparse_mixer=True)
    with pytest.raises(OperatorError, match="'activation_type' 'geglu'"):
        MoE(activation_type="geglu")
    with pytest.raises(OperatorError, match="'quant_type' is 'fp8'"):
        QMoE(quant_type="fp8")
