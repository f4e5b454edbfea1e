"""Nodes that are alike: models repeat their layers, and in other sizes what holds for one of these nodes holds for the others."""

from collections.abc import Hashable, Iterable, Mapping

from dovetail.device import TensorType, TypedNode
from dovetail_cpu_onednn.nan.bounds import has_clip
from dovetail_cpu_onednn.node_plans import computed, tensors_of

__all__ = ["Kinds", "key_of", "kinds_of"]

Kinds = Mapping[str, int]
"""Node name -> a number, equal for nodes that differ only in names, types of variables, and what cannot be sizes in constants."""

_SMALL = 64
"""Elements of a constant up to which its content is compared, else its identity."""


def kinds_of(nodes: Iterable[TypedNode]) -> Kinds:
    """The kinds of nodes. Nodes with a clip are left out: the content of their weights decides too."""
    numbers: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    for node in nodes:
        if not has_clip(node):
            given, results = node.node.inputs, node.node.outputs
            key = type(node.op), computed(node), *map(bool, given), None, *map(bool, results), *map(_constant, tensors_of(node))
            try:
                found[node.name] = numbers.setdefault(key, len(numbers))
            except TypeError:  # an attribute is an array
                continue
    return found


def _constant(tensor: TensorType | None) -> Hashable:
    """The part of a constant that decides about nodes; None for variables."""
    if tensor is None or tensor.value is None:
        return None
    value = tensor.value
    content: Hashable = None
    if value.dtype.kind != "f" and not (value.dtype.kind in "iu" and value.dtype.itemsize == 1):  # these cannot be sizes
        content = value.tobytes() if tensor.size <= _SMALL and not value.dtype.hasobject else id(value)
    return tensor.dtype, tensor.dims, tensor.layout, content


def key_of(kind: int, node: TypedNode, before: TypedNode) -> tuple[int, ...] | None:
    """Equal for nodes of a kind whose types are the same now, while these live; None where a constant is not that of `before`."""
    key = [kind]
    for tensor, known in zip(tensors_of(node), tensors_of(before), strict=True):
        if tensor is None:
            continue
        if tensor.value is None:
            key.append(id(tensor))  # equal types are mostly one object: see the pass `take_over`
        elif tensor is not known and (known is None or known.value is not tensor.value or known.layout != tensor.layout):
            return None
    return tuple(key)
