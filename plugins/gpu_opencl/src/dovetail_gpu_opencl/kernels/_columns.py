"""Values that are columns of another one: what Split and Slice of the last axis give, also as views."""

import numpy as np

from dovetail.device import Graph
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.split import Split

__all__ = ["columns_of"]


def columns_of(name: str, graph: Graph) -> tuple[str, tuple[int, int]]:
    """The value of whose last axis this one has some columns, all its rows in order, and the first and the end of them."""
    width, maker = graph.types[name].dims[-1], graph.producers.get(name)
    while maker is not None and type(maker.op) is Reshape and graph.types[maker.inputs[0]].dims[-1:] == (width,):
        name, maker = maker.inputs[0], graph.producers.get(maker.inputs[0])
    if maker is None or not isinstance(maker.op, Slice | Split) or maker.post_ops:
        return name, (0, width)
    source, result = graph.types[maker.inputs[0]], graph.types[name]
    bounds = [graph.constants.get(one) if one else None for one in maker.inputs[1:]]
    steps = bounds[3] if isinstance(maker.op, Slice) and len(bounds) > 3 else None
    whole_rows = source.dims[:-1] == result.dims[:-1] and (steps is None or np.all(steps == 1))
    if not whole_rows or any(one and array is None for one, array in zip(maker.inputs[1:], bounds, strict=True)):
        return name, (0, width)
    numbers = np.arange(source.dims[-1]).reshape(*(1,) * (source.rank - 1), -1)
    parts = maker.op.reference(numbers, *bounds)
    part = parts[maker.outputs.index(name)] if isinstance(parts, tuple) else parts
    first = int(part.reshape(-1)[0]) if part.size else 0
    return maker.inputs[0], (first, first + width)
