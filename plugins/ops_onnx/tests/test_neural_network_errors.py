"""Attributes and inputs that the neural-network operators must refuse, each with what was received and what is accepted."""

import math
from typing import Any

import numpy as np
import pytest

from dovetail.errors import OperatorError
from dovetail.graph import TensorType
from dovetail_ops_onnx import find


def _type(given: Any) -> TensorType | None:
    """A shape means float32 of unknown content; an array means a constant."""
    if given is None:
        return None
    if isinstance(given, tuple):
        return TensorType.of(np.zeros(given, np.float32))
    return TensorType.of(np.asarray(given), known=True)


_X = (1, 4, 8, 8)
_F = np.float32
_DEFORMED = (_X, (2, 4, 3, 3), (1, 18, 6, 6))
_REFUSED: list[tuple[str, int, dict[str, Any], tuple[Any, ...], str]] = [
    ("Conv", 11, {"pads": (1, 1)}, (_X, (2, 4, 3, 3)), "pads"),
    ("Conv", 11, {"pads": (1, 1, 1, -1)}, (_X, (2, 4, 3, 3)), "pads"),
    ("Conv", 11, {"strides": (0, 1)}, (_X, (2, 4, 3, 3)), "strides"),
    ("Conv", 11, {"dilations": (1, 1, 1)}, (_X, (2, 4, 3, 3)), "dilations"),
    ("Conv", 11, {"group": 0}, (_X, (2, 4, 3, 3)), "group"),
    ("Conv", 11, {"group": 3}, (_X, (3, 1, 3, 3)), "group is 3"),
    ("Conv", 11, {"group": 2}, (_X, (3, 2, 3, 3)), "group is 2"),
    ("Conv", 11, {"kernel_shape": (3, 2)}, (_X, (2, 4, 3, 3)), "kernel_shape"),
    ("Conv", 11, {"auto_pad": "SAME_UPER"}, (_X, (2, 4, 3, 3)), "SAME_UPPER"),
    ("Conv", 11, {}, (_X, (2, 3, 3, 3)), "multiples of group"),
    ("Conv", 11, {}, (_X, (2, 4, 3)), "same rank"),
    ("Conv", 11, {}, (_X, (2, 4, 9, 3)), "does not fit"),
    ("Conv", 11, {}, (_X, (2, 4, 3, 3), (3,)), "bias B"),
    ("Conv", 11, {}, ((1, 4), (2, 4)), "rank 3 or more"),
    ("DeformConv", 19, {"group": 0}, _DEFORMED, "group is 0"),
    ("DeformConv", 19, {"offset_group": 0}, _DEFORMED, "offset_group 0"),
    ("DeformConv", 19, {"group": 3}, _DEFORMED, "multiple of both groups"),
    ("DeformConv", 19, {"offset_group": 3}, _DEFORMED, "multiple of both groups"),
    ("DeformConv", 19, {"kernel_shape": (2, 3)}, _DEFORMED, "kernel_shape"),
    ("DeformConv", 19, {"strides": (1,)}, _DEFORMED, "strides"),
    ("DeformConv", 19, {}, ((1, 3, 8, 8), *_DEFORMED[1:]), "multiple of both groups"),
    ("DeformConv", 19, {}, ((1, 4, 8), *_DEFORMED[1:]), "accepted: W"),
    ("DeformConv", 19, {}, ((1, 4), (2, 4), (1, 4)), "rank 3 or more"),
    ("DeformConv", 19, {}, (*_DEFORMED[:2], (1, 17, 6, 6)), "shape [1, 18, 6, 6]"),
    ("DeformConv", 19, {}, (*_DEFORMED[:2], (18, 6, 6)), "'offset'"),
    ("DeformConv", 19, {}, (*_DEFORMED, (3,)), "shape [2]"),
    ("DeformConv", 19, {}, (*_DEFORMED, None, (1, 9, 7, 6)), "shape [1, 9, 6, 6]"),
    ("ConvTranspose", 11, {"group": 3}, (_X, (4, 1, 3, 3)), "multiple of group"),
    ("ConvTranspose", 11, {"output_padding": (-1, 0)}, (_X, (4, 1, 3, 3)), "output_padding"),
    ("ConvTranspose", 11, {"output_shape": (1, 1, 17, 17)}, (_X, (4, 1, 3, 3)), "output_shape"),
    ("MaxPool", 12, {"kernel_shape": (3,)}, (_X,), "kernel_shape"),
    ("MaxPool", 12, {"kernel_shape": (3, 3), "storage_order": 2}, (_X,), "storage_order"),
    ("MaxPool", 12, {}, (_X,), "kernel_shape"),
    ("AveragePool", 11, {"kernel_shape": (3, 3), "strides": (1, 0)}, (_X,), "strides"),
    ("GlobalAveragePool", 1, {}, ((4,),), "rank 2 or more"),
    ("BatchNormalization", 15, {}, (_X, (4,), (4,), (4,), (3,)), "var"),
    ("BatchNormalization", 9, {"spatial": 0}, (_X, (4,), (4,), (4,), (4,)), "spatial"),
    ("LayerNormalization", 17, {"axis": 4}, (_X, (8,)), "axis is 4"),
    ("LayerNormalization", 17, {}, (_X, (7,)), "Scale"),
    ("LayerNormalization", 17, {"stash_type": 7}, (_X, (8,)), "stash_type"),
    ("GroupNormalization", 21, {"num_groups": 3}, (_X, (4,), (4,)), "divisor"),
    ("GroupNormalization", 21, {"num_groups": 0}, (_X, (4,), (4,)), "num_groups"),
    ("GroupNormalization", 18, {"num_groups": 2}, (_X, (4,), (4,)), "scale"),
    ("InstanceNormalization", 6, {}, (_X, (3,), (4,)), "scale"),
    ("RMSNormalization", 23, {"axis": -5}, (_X, (8,)), "axis is -5"),
    ("LRN", 13, {"size": 0}, (_X,), "size"),
    ("LpNormalization", 1, {"p": 3}, (_X,), "'p' is 3"),
    ("Softmax", 13, {"axis": 4}, (_X,), "axis is 4"),
    ("Softmax", 11, {"axis": -5}, (_X,), "axis is -5"),
    ("LogSoftmax", 13, {"axis": 0}, ((),), "scalar"),
    ("Hardmax", 13, {"axis": 9}, (_X,), "axis is 9"),
    ("Gemm", 13, {}, ((2, 3), (4, 5)), "inner sizes 3, 4"),
    ("Gemm", 13, {}, ((2, 3), (3, 5), (3, 5)), "'C'"),
    ("Gemm", 13, {}, ((2, 3, 1), (3, 5)), "two matrices"),
    ("MatMul", 13, {}, ((2, 3), (4, 5)), "inner sizes 3, 4"),
    ("MatMul", 13, {}, ((2, 4, 3), (3, 3, 5)), "do not broadcast"),
    ("MatMul", 13, {}, ((), (3, 5)), "rank 1 or more"),
    ("ReduceSum", 13, {}, (_X, [4]), "axes is 4"),
    ("ReduceSum", 13, {}, (_X, [1, -3]), "twice"),
    ("ReduceMean", 18, {"keepdims": 2}, (_X,), "keepdims"),
    ("ArgMax", 13, {"axis": 4}, (_X,), "axis is 4"),
    ("ArgMin", 13, {}, ((0, 3),), "no elements"),
    ("TopK", 11, {}, (_X, [9]), "K is 9"),
    ("TopK", 11, {}, (_X, [-1]), "K is -1"),
    ("TopK", 11, {}, (_X, [1, 2]), "K has shape"),
    ("Resize", 13, {}, (_X, None, np.array([1, 1, 0, 2], _F)), "scale is 0.0"),
    ("Resize", 13, {}, (_X, None, np.array([1, 1, np.inf, 2], _F)), "scale is inf"),
    ("Resize", 13, {}, (_X, None, np.array([1, 1, np.nan, 2], _F)), "scale is nan"),
    ("Resize", 13, {}, (_X, None, np.array([1, 1, -1, 2], _F)), "scale is -1"),
    ("Resize", 13, {}, (_X, None, np.array([1, 1, 1e30, 2], _F)), "elements"),
    ("Resize", 13, {}, (_X, None, np.array([2, 2], _F)), "4 numbers"),
    ("Resize", 13, {}, (_X,), "neither"),
    ("Resize", 13, {}, (_X, None, np.ones(4, _F), [1, 4, 2, 2]), "both"),
    ("Resize", 13, {}, (_X, None, None, [1, 4, -2, 2]), "sizes"),
    ("Resize", 13, {}, ((1, 0), None, None, [1, 3]), "no elements"),
    ("Resize", 13, {"mode": "bilinear"}, (_X, None, np.ones(4, _F)), "linear"),
    ("Resize", 18, {"axes": (2, 4)}, (_X, None, np.ones(2, _F)), "axes is 4"),
    ("Resize", 13, {"coordinate_transformation_mode": "tf_crop_and_resize"}, (_X, None, np.ones(4, _F)), "roi"),
    ("Resize", 10, {"mode": "cubic"}, (_X, np.ones(4, _F)), "mode"),
    ("Einsum", 12, {"equation": "i;j"}, ((2,), (3,)), "equation"),
    ("Einsum", 12, {"equation": "ij,jk"}, ((2, 3),), "2 terms for 1 inputs"),
    ("Einsum", 12, {"equation": "ij,jk"}, ((2, 3), (4, 5)), "sizes 3 and 4"),
    ("Einsum", 12, {"equation": "ijk"}, ((2, 3),), "3 labels"),
    ("Einsum", 12, {"equation": "ij->ik"}, ((2, 3),), "no input has"),
    ("QuantizeLinear", 13, {"axis": 2}, ((2, 3), (3,)), "axis is 2"),
    ("QuantizeLinear", 13, {}, ((2, 3), (2,)), "shape [3]"),
    ("QuantizeLinear", 21, {"output_dtype": 7}, ((2, 3), ()), "output_dtype"),
    ("DequantizeLinear", 21, {"block_size": -1}, ((2, 3), ()), "block_size"),
    ("LSTM", 14, {"direction": "backward"}, ((3, 2, 4), (1, 20, 4), (1, 20, 5)), "direction"),
    ("LSTM", 14, {"hidden_size": 4}, ((3, 2, 4), (1, 20, 4), (1, 20, 5)), "hidden_size"),
    ("LSTM", 14, {}, ((3, 2, 4), (1, 19, 4), (1, 20, 5)), "'W'"),
    ("GRU", 14, {"activations": ("Sigmoid", "Tan")}, ((3, 2, 4), (1, 15, 4), (1, 15, 5)), "'Tanh'"),
    ("RNN", 14, {"direction": "bidirectional", "activations": ("Tanh",)}, ((3, 2, 4), (2, 5, 4), (2, 5, 5)), "activations"),
    ("Upsample", 9, {}, (_X, np.array([1, 1, 0.5, 2], _F)), "1 or more"),
]


@pytest.mark.parametrize(
    ("op_type", "version", "attributes", "inputs", "message"), _REFUSED, ids=[f"{r[0]}-{i}" for i, r in enumerate(_REFUSED)]
)
def test_refused(op_type: str, version: int, attributes: dict[str, Any], inputs: tuple[Any, ...], message: str) -> None:
    cls = find(op_type, version)
    assert cls is not None
    with pytest.raises(OperatorError) as raised:
        cls.from_attributes(attributes).infer(*map(_type, inputs))
    assert message in str(raised.value)


def test_k_out_of_range_is_refused_at_run_time_too() -> None:
    top_k = find("TopK", 11)
    assert top_k is not None
    with pytest.raises(OperatorError, match="K is 4; accepted: 0 to 3"):
        top_k().reference(np.zeros((2, 3), np.float32), np.array([4]))


@pytest.mark.parametrize("op_type", ["ReduceSum", "TopK"])
def test_a_shape_that_depends_on_data_says_so(op_type: str) -> None:
    cls = find(op_type, 13)
    assert cls is not None
    unknown = TensorType.of(np.array([1]))
    with pytest.raises(OperatorError, match="depends on data"):
        cls().infer(TensorType.of(np.zeros((2, 3), np.float32)), unknown)


def test_flops_of_a_convolution() -> None:
    conv = find("Conv", 11)
    assert conv is not None
    types = [_type((1, 4, 8, 8)), _type((6, 2, 3, 3)), _type((6,))]
    op = conv.from_attributes({"group": 2})
    out = op.infer(*types)
    assert op.flops(types, [out]) == math.prod((6, 6, 6)) * (2 * 2 * 3 * 3 + 1)
