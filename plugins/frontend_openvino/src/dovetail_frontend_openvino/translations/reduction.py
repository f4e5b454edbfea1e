"""Reductions and Softmax."""

from collections.abc import Callable

from dovetail.frontend import DType
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _reduce(op_type: str) -> Callable[[Call], str]:
    return lambda call: _reduced(call, op_type, call.name(0))


def _reduced(call: Call, op_type: str, x: str) -> str:
    # Without axes IR reduces nothing, ONNX everything unless an attribute says otherwise.
    return call.op(op_type, x, call.index_list(1), keepdims=int(call.bool_attr("keep_dims", False)), noop_with_empty_axes=1)


def _logical(op_type: str) -> Callable[[Call], str]:
    def translate(call: Call) -> str:
        return call.cast(_reduced(call, op_type, call.cast(call.name(0), DType.INT32)), DType.BOOL)

    return translate


def _softmax(op_type: str, axis: int) -> Callable[[Call], str]:
    return lambda call: call.op(op_type, call.name(0), axis=call.int_attr("axis", axis))


TABLE: Table = {
    **{f"Reduce{word}": _reduce(f"Reduce{word}") for word in ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2")},
    "ReduceLogicalAnd": _logical("ReduceMin"),
    "ReduceLogicalOr": _logical("ReduceMax"),
    "SoftMax": _softmax("Softmax", 1),
    "LogSoftmax": _softmax("LogSoftmax", 1),
}
