"""ScaledDotProductAttention."""

from typing import Any

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _attention(call: Call) -> str:
    """ONNX's Attention on [batch, heads, length, width]; values of rank 3 get one head."""
    if call.has(5):
        raise FormatError("the layer has a sink (input 5)", hint="accepted: query, key, value, mask, scale")
    rank = call.rank(0)
    if rank not in (3, 4):
        raise FormatError(f"the query has rank {rank}", hint="accepted: 3 or 4")
    attributes: dict[str, Any] = {"is_causal": int(call.bool_attr("causal", False))}
    query = call.name(0)
    if call.has(4):
        scale = call.scalar(4, "scale")
        if scale is None:  # ONNX has an attribute for it
            query, scale = call.op("Mul", query, call.name(4)), 1.0
        attributes["scale"] = scale
    given = (query, call.name(1), call.name(2))
    inputs = [name if rank == 4 else call.op("Unsqueeze", name, call.const([1])) for name in given]
    if (call.has(3) and not attributes["is_causal"] and call.known(3) is None) or _is_a_mask(call, attributes):
        inputs.append(_mask(call, rank))
    result = call.op("Attention", *inputs, **attributes)
    return result if rank == 4 else call.op("Squeeze", result, call.const([1]))


def _is_a_mask(call: Call, attributes: dict[str, Any]) -> bool:
    """False for the scalar 0 that stands for no mask; a causal attention ignores the mask."""
    mask = call.known(3)
    return mask is not None and not attributes["is_causal"] and (mask.ndim > 0 or bool(mask != 0))


def _mask(call: Call, rank: int) -> str:
    missing = 4 - call.rank(3) if rank == 4 else 1
    if rank == 4 and missing > 0 and call.rank(3) < 2:
        raise FormatError(f"the mask has rank {call.rank(3)}", hint="accepted: 2 or more")
    if rank == 4 or call.rank(3) < 3:
        return call.name(3)
    return call.op("Unsqueeze", call.name(3), call.const([1]))


TABLE: Table = {"ScaledDotProductAttention": _attention}
