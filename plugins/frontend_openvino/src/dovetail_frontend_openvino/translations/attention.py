"""ScaledDotProductAttention."""

from typing import Any

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _attention(call: Call) -> str:
    """ONNX's Attention, on [batch, heads, length, width]: values of rank 3 get one head, the leading dimensions of others are
    made one.
    """
    if call.has(5):
        raise FormatError("the layer has a sink (input 5)", hint="accepted: query, key, value, mask, scale")
    rank = call.rank(0)
    if rank < 3:
        raise FormatError(f"the query has rank {rank}", hint="accepted: 3 or more")
    attributes: dict[str, Any] = {"is_causal": int(call.bool_attr("causal", False))}
    query = call.name(0)
    if call.has(4):
        scale = call.scalar(4, "scale")
        if scale is None:  # ONNX has an attribute for it
            query, scale = call.op("Mul", query, call.name(4)), 1.0
        attributes["scale"] = scale
    query, key, value = _broadcast(call, query, call.name(1), call.name(2))
    inputs = [_of_rank_4(call, name, rank) for name in (query, key, value)]
    if (call.has(3) and not attributes["is_causal"] and call.known(3) is None) or _is_a_mask(call, attributes):
        inputs.append(_mask(call, rank, query))
    result = call.op("Attention", *inputs, **attributes)
    if rank == 4:
        return result
    if rank == 3:
        return call.op("Squeeze", result, call.const([1]))
    sizes = call.op("Shape", query, end=-1), call.op("Shape", value, start=-1)
    return call.op("Reshape", result, call.op("Concat", *sizes, axis=0))


def _broadcast(call: Call, *names: str) -> tuple[str, ...]:
    """Query, key and value with the leading dimensions of all three, where one declares a size of 1 and another does not."""
    leads = [call.shape(i)[:-2] for i in range(3)]
    if all(len(set(dims)) == 1 or 1 not in dims for dims in zip(*leads, strict=False)):
        return names
    first, *others = (call.op("Concat", call.op("Shape", name, end=-2), call.const([1, 1]), axis=0) for name in names)
    for other in others:
        first = call.op("Max", first, other)
    return tuple(call.op("Expand", name, first) for name in names)


def _of_rank_4(call: Call, name: str, rank: int) -> str:
    if rank == 4:
        return name
    if rank == 3:
        return call.op("Unsqueeze", name, call.const([1]))
    return call.op("Reshape", name, call.op("Concat", call.const([-1]), call.op("Shape", name, start=-3), axis=0))


def _is_a_mask(call: Call, attributes: dict[str, Any]) -> bool:
    """False for the scalar 0 that stands for no mask; a causal attention ignores the mask."""
    mask = call.known(3)
    return mask is not None and not attributes["is_causal"] and (mask.ndim > 0 or bool(mask != 0))


def _mask(call: Call, rank: int, query: str) -> str:
    given = call.rank(3)
    if rank > 3 and given < 2:
        raise FormatError(f"the mask has rank {given}", hint="accepted: 2 or more")
    if rank == 4 or given < 3:
        return call.name(3)
    if rank == 3:
        return call.op("Unsqueeze", call.name(3), call.const([1]))
    sizes = call.op("Shape", query, end=-2), call.op("Shape", call.name(3), start=-2)
    whole = call.op("Expand", call.name(3), call.op("Concat", *sizes, axis=0))
    return _of_rank_4(call, whole, rank)


TABLE: Table = {"ScaledDotProductAttention": _attention}
