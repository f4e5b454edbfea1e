"""Places of values in sorted lists: the number of elements that are smaller, or not larger."""

from dovetail.frontend import DType
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _bucketize(call: Call) -> str:
    below = call.choice_attr(
        "with_right_bound", {"true": "Less", "1": "Less", "false": "LessOrEqual", "0": "LessOrEqual"}, "true"
    )
    return _count(call, below, call.name(1), call.name(0))


def _search_sorted(call: Call) -> str:
    below = "LessOrEqual" if call.bool_attr("right_mode", False) else "Less"
    return _count(call, below, call.op("Unsqueeze", call.name(0), call.const([-2])), call.name(1))


def _count(call: Call, below: str, elements: str, values: str) -> str:
    found = call.op(below, elements, call.op("Unsqueeze", values, call.const([-1])))
    dtype = call.type_attr("output_type", DType.INT64)
    return call.op("ReduceSum", call.cast(found, dtype), call.const([-1]), keepdims=0)


TABLE: Table = {"Bucketize": _bucketize, "SearchSorted": _search_sorted}
