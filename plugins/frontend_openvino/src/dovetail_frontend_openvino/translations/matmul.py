"""Matrix products and Einsum."""

from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _matmul(call: Call) -> str:
    return call.op("MatMul", _operand(call, 0, "transpose_a"), _operand(call, 1, "transpose_b"))


def _operand(call: Call, index: int, attribute: str) -> str:
    if not call.bool_attr(attribute, False) or call.rank(index) < 2:  # a vector has nothing to transpose
        return call.name(index)
    rank = call.rank(index)
    return call.transpose(call.name(index), (*range(rank - 2), rank - 1, rank - 2))


TABLE: Table = {
    "MatMul": _matmul,
    "Einsum": lambda call: call.op("Einsum", *call.names, equation=call.text_attr("equation")),
}
