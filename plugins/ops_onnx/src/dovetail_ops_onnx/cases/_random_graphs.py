"""The nodes of random graphs, on which the conformance kit compares devices with float64."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from dovetail.op import Operator
from dovetail.testing.random_graphs import Drawing, Kind
from dovetail_ops_onnx.abs import Abs
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.batch_normalization import BatchNormalization
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.elu import Elu
from dovetail_ops_onnx.flatten import Flatten
from dovetail_ops_onnx.gemm import Gemm
from dovetail_ops_onnx.global_average_pool import GlobalAveragePool
from dovetail_ops_onnx.hard_swish import HardSwish
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.min import Min
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sigmoid import Sigmoid
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.softplus import Softplus
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["KINDS"]


def _every(shape: tuple[int, ...]) -> bool:
    return True


def _is_image(shape: tuple[int, ...]) -> bool:
    return len(shape) == 4 and min(shape[2:]) >= 3


def _is_matrix(shape: tuple[int, ...]) -> bool:
    return len(shape) == 2


def _simple(op: Operator, fits: Callable[[tuple[int, ...]], bool] = _every) -> Kind:
    return Kind(fits, lambda d, shape: (op, []))


def _binary(op: Operator) -> Kind:
    return Kind(_every, lambda d, shape: (op, [d.operand(shape)]))


def _conv(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    group = shape[1] if d.rng.random() < 0.3 else 1
    maps = shape[1] if group > 1 else int(d.rng.integers(1, 6))
    size = int(d.rng.integers(1, 4))
    weights = d.constant(maps, shape[1] // group, size, size, scale=1 / (size * np.sqrt(shape[1] // group)))
    pads = (size // 2,) * 4 if d.rng.random() < 0.7 else (0,) * 4
    return Conv(group=group, pads=pads), [weights, *([d.constant(maps)] if d.rng.random() < 0.5 else [])]


def _gemm(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    width = int(d.rng.integers(1, 9))
    turned = bool(d.rng.random() < 0.5)
    weights = d.constant(*((width, shape[1]) if turned else (shape[1], width)), scale=1 / np.sqrt(shape[1]))
    return Gemm(transB=turned), [weights, d.constant(width)]


def _mat_mul(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return MatMul(), [d.constant(shape[-1], int(d.rng.integers(1, 9)), scale=1 / np.sqrt(shape[-1]))]


def _layer_norm(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    # epsilon is large: over few elements of nearly equal value the variance would magnify rounding errors.
    return LayerNormalization(axis=-1, epsilon=0.1), [d.constant(shape[-1]), d.constant(shape[-1])]


def _batch_norm(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    channels = shape[1]
    variance = d.g.constant((0.5 + d.rng.random(channels)).astype(np.float32))
    return BatchNormalization(), [*(d.constant(channels) for _ in range(3)), variance]


def _reduce(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return ReduceMean(keepdims=True), [d.g.constant(np.array([int(d.rng.integers(len(shape)))]))]


def _transpose(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return Transpose(perm=tuple(map(int, d.rng.permutation(len(shape))))), []


def _concat(d: Drawing, shape: tuple[int, ...]) -> tuple[Operator, list[str]]:
    return Concat(axis=int(d.rng.integers(len(shape)))), [d.constant(*shape)]


_POOLING: dict[str, Any] = {"kernel_shape": (2, 3), "strides": (1, 2), "pads": (1, 1, 0, 1)}

KINDS: Mapping[str, Kind] = {
    **{op.op_type: _simple(op) for op in (Relu(), Sigmoid(), Tanh(), Neg(), Abs(), HardSwish(), Elu(), LeakyRelu(), Softplus())},
    **{op.op_type: _binary(op) for op in (Add(), Sub(), Mul(), Max(), Min())},
    "Softmax": _simple(Softmax(axis=-1)),
    "Flatten": _simple(Flatten()),
    "MaxPool": _simple(MaxPool(**_POOLING), _is_image),
    "AveragePool": _simple(AveragePool(**_POOLING), _is_image),
    "GlobalAveragePool": _simple(GlobalAveragePool(), _is_image),
    "Conv": Kind(_is_image, _conv),
    "Gemm": Kind(_is_matrix, _gemm),
    "MatMul": Kind(lambda shape: len(shape) >= 2, _mat_mul),
    "LayerNormalization": Kind(_every, _layer_norm),
    "BatchNormalization": Kind(_is_image, _batch_norm),
    "ReduceMean": Kind(_every, _reduce),
    "Transpose": Kind(_every, _transpose),
    "Concat": Kind(_every, _concat),
}
"""Operator name -> how random graphs use it. All of them are continuous, so that rounding errors stay small."""
