"""Mixtures of experts: MoE, and QMoE with weights of few bits. Which experts a token takes is data, so they run on the host."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import unpacked

__all__ = ["MoE", "QMoE"]

Array = NDArray[Any]
Types = tuple[TensorType | None, ...]
Layer = Callable[[int], Array | None]
"""Weights [out, in] or bias [out] of an expert, in float32."""


def _gelu(x: Array) -> Array:
    return np.asarray(0.5 * x * (1 + np.tanh(np.float32(np.sqrt(2 / np.pi)) * (x + 0.044715 * x**3))))


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": _gelu,
    "silu": lambda x: x * _sigmoid(x),
    "identity": lambda x: x,
}


class MoE(MicrosoftOperator):
    """Each token [.., hidden] by the `k` experts with the greatest `router_probs` [tokens, experts], weighted by their softmax.

    An expert is fc2 of the activation of fc1: weights [experts, out, in], biases [experts, out]. fc3 of the token multiplies what
    comes out of the activation. `swiglu` is g * sigmoid(alpha * g) * (l + beta), with g at most `swiglu_limit` and l within it;
    l is fc3, or with `swiglu_fusion` in the rows of fc1: the odd ones (1) or the second half (2). The softmax is over the experts
    that are taken with `normalize_routing_weights`, else over all.
    """

    inputs: ClassVar[tuple[Any, ...]] = (
        "input: T",
        "router_probs: T",
        "fc1_experts_weights: T",
        "fc1_experts_bias?: T",
        "fc2_experts_weights: T",
        "fc2_experts_bias?: T",
        "fc3_experts_weights?: T",
        "fc3_experts_bias?: T",
    )
    outputs = ("output: T",)
    types = {"T": FLOAT_TYPES}
    activation_alpha: float = 1.0
    activation_beta: float = 0.0
    activation_type: str = "relu"
    k: int = 1
    normalize_routing_weights: bool = False
    swiglu_fusion: int = 0
    swiglu_limit: float = float("inf")
    swiglu_limit_after_activation: bool = False
    use_sparse_mixer: bool = False

    def __post_init__(self) -> None:
        if self.activation_type not in (*_ACTIVATIONS, "swiglu") or self.use_sparse_mixer or self.swiglu_limit_after_activation:
            raise OperatorError(
                f"attributes 'activation_type' {self.activation_type!r}, 'use_sparse_mixer' {self.use_sparse_mixer}, "
                f"'swiglu_limit_after_activation' {self.swiglu_limit_after_activation}; "
                f"accepted: {', '.join(_ACTIVATIONS)}, swiglu; False; False"
            )
        if self.swiglu_fusion not in (0, 1, 2) or self.k < 1:
            raise OperatorError(f"'swiglu_fusion' is {self.swiglu_fusion}, 'k' {self.k}; accepted: 0 to 2, 1 or more")

    @property
    def width(self) -> int:
        """Rows of fc1 for each number that fc2 reads."""
        return 2 if self.activation_type == "swiglu" and self.swiglu_fusion else 1

    def infer(self, x: TensorType, probs: TensorType, fc1: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of the input. Raises `ShapeError`."""
        _, fc2, _, fc3, _ = (*rest, *[None] * 5)[:5]
        self._check_sizes(x, probs, [(fc1, 1), (fc2, 1), (fc3, 1)])
        return x.with_shape(x.shape)

    def _check_sizes(self, x: TensorType, probs: TensorType, layers: list[tuple[TensorType | None, int]]) -> None:
        """Check the sizes; each layer with the numbers in an element."""
        (fc1, pack1), (fc2, pack2), (fc3, pack3) = layers
        tokens = x.size // max(1, x.dims[-1]) if x.rank else 0
        if x.rank not in (2, 3) or probs.dims != (tokens, probs.dims[-1]) or not self.k <= probs.dims[-1]:
            raise ShapeError(f"'input' is {x}, 'router_probs' {probs}; accepted: [.., hidden], [tokens, {self.k} or more]")
        experts, hidden = probs.dims[1], x.dims[-1]
        inner = 0 if fc2 is None or fc2.rank != 3 else fc2.dims[2] * pack2
        wanted = ((fc1, inner * self.width, hidden // pack1), (fc2, hidden, inner // pack2), (fc3, inner, hidden // pack3))
        for number, (layer, *sizes) in enumerate(wanted, 1):
            if layer is not None and layer.dims != (experts, *sizes):
                raise ShapeError(f"'fc{number}_experts_weights' is {layer}; accepted: {[experts, *sizes]}")
        if (self.activation_type == "swiglu" and not self.swiglu_fusion) > (fc3 is not None):
            raise OperatorError("swiglu without 'fc3_experts_weights'; accepted: with it, or 'swiglu_fusion'")

    def reference(self, x: Array, probs: Array, fc1: Array, *rest: Array | None) -> Array:
        """Expert by expert in float32, each for the tokens that take it."""
        bias1, fc2, bias2, fc3, bias3 = (*rest, *[None] * 5)[:5]
        layers = [_one_of(array) for array in (fc1, bias1, fc2, bias2, fc3, bias3)]
        return self.mixed(x, probs, None, layers)

    def mixed(self, x: Array, probs: Array, weights: Array | None, layers: list[Layer]) -> Array:
        """The output; `weights` [tokens, experts], if given, are those of the sums, unless these are the softmax."""
        tokens = x.reshape(-1, x.shape[-1]).astype(np.float32)
        chosen, share = self._routed(probs.astype(np.float32), weights)
        y = np.zeros_like(tokens)
        for expert in np.unique(chosen).tolist():
            row, place = np.nonzero(chosen == expert)
            fc1, bias1, fc2, bias2, fc3, bias3 = (layer(expert) for layer in layers)
            inner = self._activated(_linear(tokens[row], fc1, bias1), _linear(tokens[row], fc3, bias3))
            y[row] += share[row, place, None] * _linear(inner, fc2, bias2)
        return y.reshape(x.shape).astype(x.dtype)

    def _routed(self, probs: Array, weights: Array | None) -> tuple[Array, Array]:
        """The experts of each token [tokens, k], and their shares."""
        chosen = np.argsort(-probs, axis=1, kind="stable")[:, : self.k]
        if weights is not None:
            share = np.take_along_axis(weights.astype(np.float32), chosen, 1)
            return chosen, share / share.sum(1, keepdims=True) if self.normalize_routing_weights else share
        powers = np.exp(probs - probs.max(1, keepdims=True, initial=-np.inf))
        taken = np.take_along_axis(powers, chosen, 1)
        return chosen, taken / (taken if self.normalize_routing_weights else powers).sum(1, keepdims=True)

    def _activated(self, x: Array, gated: Array) -> Array:
        with np.errstate(over="ignore"):
            if self.activation_type != "swiglu":
                y = _ACTIVATIONS[self.activation_type](x)
                return y * gated if gated.size else y
            if self.swiglu_fusion:
                half = x.shape[1] // 2
                x, gated = (x[:, ::2], x[:, 1::2]) if self.swiglu_fusion == 1 else (x[:, :half], x[:, half:])
            x, gated = np.minimum(x, self.swiglu_limit), np.clip(gated, -self.swiglu_limit, self.swiglu_limit)
            return np.asarray(x * _sigmoid(self.activation_alpha * x) * (gated + self.activation_beta), np.float32)


class QMoE(MoE):
    """MoE with weights of `expert_weight_bits` 2, 4 or 8, the first in the lowest bits: [experts, out, in * bits / 8].

    They stand for (q - zero point) * scale, with scales [experts, out], or with `block_size` [experts, out, in / block_size].
    Zero points are packed as weights are; without them 2 ^ (bits - 1). With `router_weights` these weight the experts.
    """

    inputs = (
        "input: T",
        "router_probs: T",
        *(f"fc{n}_{what}" for n in (1, 2) for what in ("experts_weights: uint8", "scales: S", "experts_bias?: T")),
        *("fc3_experts_weights?: uint8", "fc3_scales?: S", "fc3_experts_bias?: T"),
        *(f"fc{n}_zero_points?: uint8" for n in (1, 2, 3)),
        "router_weights?: T",
    )
    outputs = ("output: T",)
    types = {"T": FLOAT_TYPES, "S": FLOAT_TYPES}
    accuracy_level: int = 0
    block_size: int = 0
    expert_weight_bits: int = 4
    fc1_expert_weight_bits: int | None = None
    fc2_expert_weight_bits: int | None = None
    fc3_expert_weight_bits: int | None = None
    quant_type: str = "int"
    weights_prepacked: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quant_type != "int" or any(bits not in (2, 4, 8) for bits in self.bits) or self.weights_prepacked > 0:
            raise OperatorError(
                f"'quant_type' is {self.quant_type!r}, bits {self.bits}, 'weights_prepacked' {self.weights_prepacked}; "
                "accepted: 'int', 2, 4 or 8, not 1"
            )

    @property
    def bits(self) -> tuple[int, int, int]:
        """Those of fc1, fc2, fc3."""
        given = (self.fc1_expert_weight_bits, self.fc2_expert_weight_bits, self.fc3_expert_weight_bits)
        first, second, third = (self.expert_weight_bits if bits is None else bits for bits in given)
        return first, second, third

    def infer(self, x: TensorType, probs: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of the input. Raises `ShapeError`."""
        given = (*rest, *[None] * 13)[:13]
        layers, packs = (given[0], given[3], given[6]), [8 // bits for bits in self.bits]
        self._check_sizes(x, probs, list(zip(layers, packs, strict=True)))
        for number, (layer, scales, zeros, pack) in enumerate(zip(layers, given[1:9:3], given[9:12], packs, strict=True), 1):
            if layer is None:
                continue
            experts, rows, size = layer.dims
            blocks = (size * pack // self.block_size,) if self.block_size else ()
            packed = (experts, *_packed((rows, *blocks), pack))
            if scales is None or scales.dims != (experts, rows, *blocks) or (zeros is not None and zeros.dims != packed):
                accepted = f"{[experts, rows, *blocks]}, {list(packed)}"
                raise ShapeError(f"'fc{number}_scales' is {scales}, its zero points {zeros}; accepted: {accepted}")
        return x.with_shape(x.shape)

    def reference(self, x: Array, probs: Array, *rest: Array | None) -> Array:
        """Expert by expert in float32, each for the tokens that take it."""
        given = (*rest, *[None] * 13)[:13]
        layers: list[Layer] = []
        for i, bits in enumerate(self.bits):
            layers += [self._floats(given[3 * i], given[3 * i + 1], given[9 + i], bits), _one_of(given[3 * i + 2])]
        return self.mixed(x, probs, given[12], layers)

    def _floats(self, packed: Array | None, scales: Array | None, zeros: Array | None, bits: int) -> Layer:
        def of(expert: int) -> Array | None:
            if packed is None or scales is None:
                return None
            scale = scales[expert].astype(np.float32)
            q = unpacked(packed[expert], bits).astype(np.float32).reshape(*scale.shape, -1)
            rows = None if zeros is None else unpacked(zeros[expert].reshape(-1, zeros.shape[-1]), bits)
            if rows is None:
                q -= 2.0 ** (bits - 1)
            elif self.block_size:
                q -= rows[:, : scale.shape[1], None].astype(np.float32)
            else:
                q -= rows[0, : len(scale), None].astype(np.float32)
            q *= scale[..., None]
            return q.reshape(len(scale), -1)

        return of


def _packed(dims: tuple[int, ...], pack: int) -> tuple[int, ...]:
    return (*dims[:-1], -(-dims[-1] // pack))


def _one_of(array: Array | None) -> Layer:
    return lambda expert: None if array is None else np.asarray(array[expert], np.float32)


def _linear(x: Array, weights: Array | None, bias: Array | None) -> Array:
    """x times the transposed weights plus the bias; nothing without weights."""
    if weights is None:
        return np.empty(0, np.float32)
    y = x @ weights.T
    return y if bias is None else y + bias
