"""Compressed weights: integers (or numbers of few bits) with scales in float16, from which OpenVINO makes float32 weights.

NNCF writes them as Convert to float16, Subtract, Multiply, Reshape, Convert to float32. OpenVINO computes such chains in float32
and never rounds to float16 in between; so do we, by declaring the value between the two conversions as float32.
"""

import dataclasses
from collections.abc import Iterator

from dovetail.frontend import DType
from dovetail_frontend_openvino.layers import Layer, Net

__all__ = ["decompressed"]

_ARITHMETIC = ("subtract", "multiply")
_INSIDE = (*_ARITHMETIC, "convert", "reshape", "const")


def decompressed(net: Net) -> Net:
    """The graph with chains of constants in float16 that end in a conversion to float32 declared as float32.

    Only chains that compute, and whose values nothing else reads. What holds them in the file stays: a Const of such a chain is
    float16 by its `element_type` and float32 by its port.
    """
    readers: dict[int, set[int]] = {}
    sources: dict[int, list[int]] = {}
    for (target, _), (source, _) in net.edges.items():
        readers.setdefault(source, set()).add(target)
        sources.setdefault(target, []).append(source)
    wide: set[int] = set()
    for layer in net.layers.values():
        if _is(layer, "convert") and _element(layer, "destination_type") == "f32" and layer.id not in wide:
            chain = _chain(net, sources, layer)
            closed = all(readers[id] <= chain | {layer.id} for id in chain)
            if closed and any(net.layers[id].type.lower() in _ARITHMETIC for id in chain):
                wide |= chain
    if not wide:
        return net
    return dataclasses.replace(net, layers={id: _widened(layer) if id in wide else layer for id, layer in net.layers.items()})


def _chain(net: Net, sources: dict[int, list[int]], end: Layer) -> set[int]:
    """The layers in float16 from which `end` is computed; empty when one of them is not a constant or of another kind."""
    found: set[int] = set()
    waiting = list(sources.get(end.id, ()))
    while waiting:
        layer = net.layers[waiting.pop()]
        if layer.id in found or not _is_half(layer):
            continue  # such as the shape of a Reshape, and the numbers that are converted
        if not any(_is(layer, kind) for kind in _INSIDE):
            return set()
        if not all(_is(other, "const") for other in _others(net, sources, layer)):
            return set()
        found.add(layer.id)
        waiting += sources.get(layer.id, ())
    return found


def _others(net: Net, sources: dict[int, list[int]], layer: Layer) -> Iterator[Layer]:
    """The inputs of the layer that are not in float16."""
    return (found for id in sources.get(layer.id, ()) if not _is_half(found := net.layers[id]))


def _is_half(layer: Layer) -> bool:
    return len(layer.outputs) == 1 and layer.outputs[0].dtype is DType.FLOAT16


def _widened(layer: Layer) -> Layer:
    attributes = {**layer.attributes, "destination_type": "f32"} if _is(layer, "convert") else layer.attributes
    outputs = tuple(dataclasses.replace(port, dtype=DType.FLOAT32) for port in layer.outputs)
    return dataclasses.replace(layer, attributes=attributes, outputs=outputs)


def _is(layer: Layer, kind: str) -> bool:
    return layer.is_standard and layer.type.lower() == kind


def _element(layer: Layer, attribute: str) -> str:
    return layer.attributes.get(attribute, "").strip().lower()
