"""Differences that docs/reference/onnx_differences.md describes, and what onnx.reference gets wrong."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from random_graphs.data import FLOATS
from random_graphs.graph import Arrays

__all__ = ["reason"]

Applies = Callable[[NodeProto, Arrays], bool]


def reason(node: NodeProto, inputs: Arrays, device: str) -> str:
    """The documented reason for which this node may differ from its peers on these inputs; "" when there is none."""
    if device.startswith("ONEDNN") and node.op_type in _WINDOWS and _unusual(node, inputs):
        return "oneDNN multiplies what is beside a window by 0"
    return next((text for applies, text in _CASES.get(node.op_type, ()) if applies(node, inputs)), "")


_WINDOWS = ("Conv", "ConvTranspose")


def _has_nan(node: NodeProto, inputs: Arrays) -> bool:
    return any(a.dtype in FLOATS and bool(np.isnan(a.astype(np.float64)).any()) for a in inputs.values())


def _unusual(node: NodeProto, inputs: Arrays) -> bool:
    """NaN or infinities."""
    return any(a.dtype in FLOATS and not np.isfinite(a.astype(np.float64)).all() for a in inputs.values())


def _integers(node: NodeProto, inputs: Arrays) -> bool:
    return inputs[node.input[0]].dtype.kind in "iu"


def _large_integers(node: NodeProto, inputs: Arrays) -> bool:
    """Integers whose squares or sums are beyond their type, or beyond the 53 bits of float64."""
    return any(a.dtype.kind in "iu" and a.size and float(np.abs(a.astype(np.float64)).max()) > 100 for a in inputs.values())


def _out_of_range(node: NodeProto, inputs: Arrays) -> bool:
    """Floats that the integers do not have: the generator avoids them, but onnx.reference divides by negative norms."""
    x, given = inputs[node.input[0]], _attributes(node)
    to = helper.tensor_dtype_to_np_dtype(given["to"]) if "to" in given else inputs[node.input[1]].dtype
    if x.dtype not in FLOATS or to.kind not in "iu":
        return False
    wide = x.astype(np.float64)
    return bool(((wide < np.iinfo(to).min) | (wide > np.iinfo(to).max)).any())


def _no_elements(node: NodeProto, inputs: Arrays) -> bool:
    return not inputs[node.input[0]].size


def _one_element(node: NodeProto, inputs: Arrays) -> bool:
    return bool(inputs[node.input[0]].reshape(()) == 1)


def _axis_of_one(node: NodeProto, inputs: Arrays) -> bool:
    return 1 in inputs[node.input[1]][2:]


def _not_sorted(node: NodeProto, inputs: Arrays) -> bool:
    return not _attributes(node).get("sorted", 1)


def _constant_rows(node: NodeProto, inputs: Arrays) -> bool:
    x = inputs[node.input[0]].astype(np.float64)
    axes = tuple(_attributes(node).get("axes", (0, 2, 3)))
    return x.size > 0 and bool((x.max(axes) == x.min(axes)).any())


def _attributes(node: NodeProto) -> Mapping[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


_CASES: dict[str, Sequence[tuple[Applies, str]]] = {
    **dict.fromkeys(("Cast", "CastLike"), ((_out_of_range, "floats that the integers do not have: open in the standard"),)),
    "MaxPool": [(_has_nan, "NaN wins over every number")],
    "MaxRoiPool": [(_has_nan, "NaN wins over every number")],
    "ThresholdedRelu": [(_has_nan, "NaN stays NaN")],
    **dict.fromkeys(("HannWindow", "HammingWindow", "BlackmanWindow"), ((_one_element, "one element has the angle 0"),)),
    **dict.fromkeys(("Erf", "ReduceLogSum", "ReduceLogSumExp"), ((_integers, "computed in float64 and truncated"),)),
    **dict.fromkeys(("Gemm", "MatMul", "ReduceL2"), ((_large_integers, "integers beyond their type wrap"),)),
    "ReduceMean": [(_large_integers, "integers beyond their type wrap"), (_no_elements, "NaN, which is 0 as an integer")],
    **dict.fromkeys(("ScatterElements", "ScatterND"), ((_has_nan, "NaN wins over every number"),)),
    "AffineGrid": [(_axis_of_one, "an axis of one element is at -1")],
    "GridSample": [(_unusual, "a neighbour of weight 0 is multiplied")],
    "LRN": [(_unusual, "NaN and infinity affect the channels whose region has them")],
    "OneHot": [(_unusual, "onnx.reference multiplies the values by 0")],
    "MeanVarianceNormalization": [(_constant_rows, "variance 0; onnxruntime's is a difference that may be negative")],
    "QuantizeLinear": [(_large_integers, "saturates; onnx.reference wraps"), (_unusual, "NaN becomes 0 before it is limited")],
    "DynamicQuantizeLinear": [(_unusual, "NaN becomes 0 before it is limited")],
    "RoiAlign": [(_unusual, "onnx.reference multiplies an element by the weight 0")],
    **dict.fromkeys(
        ("Resize", "Upsample"),
        ((_integers, "truncated; onnx.reference rounds"), (_unusual, "a neighbour of weight 0 does not count")),
    ),
    "Unique": [(_not_sorted, "order of first appearance; onnx.reference sorts"), (_has_nan, "NaN equals no element")],
    "Clip": [(_unusual, "a bound that is left out is the finite limit of the type")],
}
