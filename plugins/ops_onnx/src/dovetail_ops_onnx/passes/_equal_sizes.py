"""Which sizes the nodes of a plan belong to together: what was decided holds where those that were equal still are."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

from dovetail.dataclass import dataclass
from dovetail.graph import Graph, Node
from dovetail.op import PLAIN
from dovetail_ops_onnx.passes._typed_again import Bodies

__all__ = ["STANDARD", "Group", "Pairs", "groups_of", "images", "origins_of", "pairs_of", "stood_for"]

_CONVOLUTIONS = frozenset({"Conv", "ConvInteger", "ConvIntegerToFloat", "ConvTranspose", "QLinearConv"})
_PRODUCTS = frozenset({"Gemm", "MatMul", "MatMulInteger", "MatMulIntegerToFloat"})
_NORMALIZATIONS = frozenset({"BatchNormalization", "GroupNormalization", "InstanceNormalization", "LayerNormalization"})
_BLOCKS = frozenset({"MatMulBlocks", "MatMulDigits", "RowDigits"})
_BY_AXIS = (
    _CONVOLUTIONS
    | _BLOCKS
    | _NORMALIZATIONS.union(
        {"Add", "AveragePool", "ByteTable", "Cast", "Concat", "DequantizeLinear", "DynamicQuantizeLinear", "Convert"},
        {
            "GlobalAveragePool",
            "GlobalMaxPool",
            "GridSample",
            "MaxPool",
            "Mul",
            "Pad",
            "QuantizeLinear",
            "ReduceMax",
            "ReduceMean",
        },
        {"ReduceMin", "ReduceProd", "ReduceSum", "Reorder", "Reshape", "Resize", "Slice", "Softmax", "Split", "Upsample"},
    )
)
"""Operators for which sizes of different axes mean nothing to each other, their quantized forms too. So it is for those that
compute in place, and for products by constants.
"""

_WEIGHTED = (
    _CONVOLUTIONS | _PRODUCTS | _BLOCKS | {"BatchNormalization", "ByteTable", "GroupNormalization", "InstanceNormalization"}
)
"""Operators whose constants decide nothing by their sizes. Passes give LayerNormalization some that have those of rows."""

_MOVES, _GROUPED, _INSTANCES = (frozenset({name}) for name in ("Transpose", "GroupNormalization", "InstanceNormalization"))
_SUMS = frozenset({"ConvIntegerToFloat"})

STANDARD = ("dovetail", __package__.partition(".")[0])
"""The packages of these."""

Pairs = frozenset[tuple[int, int, int]]
"""The sizes of the axes of values: the axis, counted from the last one, before and now. Axis 0 stands for any."""


def pairs_of(before: Sequence[int], now: Sequence[int]) -> Pairs:
    """Those of one value."""
    return frozenset((axis - len(now), one, other) for axis, (one, other) in enumerate(zip(before, now, strict=True)))


@dataclass(frozen=True, slots=True)
class Group:
    """The values of the nodes that one node of a part stands for, and its own. `fixed` are the sizes of constants that passes
    made, `numbers` the whole numbers among attributes that passes set, but for axes. `by_axis`: only sizes of one axis are
    compared.
    """

    values: tuple[str, ...]
    fixed: Pairs
    numbers: frozenset[int]
    by_axis: bool

    @staticmethod
    def of(groups: "Sequence[Group]", by_axis: bool) -> "Group":
        """All of these in one."""
        fixed, numbers = (frozenset[Any]().union(*parts) for parts in ([g.fixed for g in groups], [g.numbers for g in groups]))
        return Group(tuple(dict.fromkeys(name for group in groups for name in group.values)), fixed, numbers, by_axis)

    def fits(self, pairs: Mapping[str, Pairs]) -> bool:
        """Whether sizes that were equal still are, and none that changed is an attribute."""
        found = self.fixed.union(*{pairs[name] for name in self.values if name in pairs})
        if not self.by_axis:
            found = frozenset((0, one, now) for _, one, now in found)
        before = {(axis, one) for axis, one, _ in found}
        return len(before) == len(found) and not any(one in self.numbers and one != now for _, one, now in found)


def origins_of(analyzed: Graph, bodies: Bodies) -> Mapping[str, list[Node]]:
    """The analyzed nodes by the names that nodes of the parts have, as their own or for origins."""
    found = {node.name: [node] for node in analyzed.nodes}
    for node in (node for _, body in bodies.values() for node in body.nodes if node.name in found):
        for name in node.origins:  # those of the node that was expanded
            found.setdefault(name, []).append(found[node.name][0])
    return found


def groups_of(analyzed: Graph, parts: Sequence[Any], origins: Mapping[str, list[Node]], widened: Container[str]) -> list[Group]:
    """One for each node of the parts that a pass made or gave a layout, and for each node that none of the parts stands for."""
    own, arrays = {id(node.op) for node in analyzed.nodes}, {id(array) for array in analyzed.constants.values()}
    left, fixed = {node.name: node for node in analyzed.nodes}, _fixed(analyzed)
    groups: dict[Group, None] = {}
    for graph in (part.graph for part in parts):
        made = {n: array.shape for n, array in graph.constants.items() if id(array) not in arrays and n not in widened}
        for node in graph.nodes:
            nodes = stood_for(node, origins)
            for one in nodes:
                left.pop(one.name, None)
            if [node] == nodes and all(graph.types[name].layout == PLAIN for name in (*node.reads, *node.writes)):
                continue  # it means for all sizes what the model says
            if all(_is_one_of(_MOVES, one) and not one.post_ops for one in (*nodes, node)):
                continue  # one order of axes for all sizes
            constants = fixed, graph.constants
            if _is_one_of(_GROUPED, node):
                nodes = []  # that there are as many images of groups is compared apart, the rest is said by weights
            values = dict.fromkeys(name for one in (*nodes, node) for name in _values(one, constants))
            pairs = frozenset[Any]().union(*(pairs_of(made[name], made[name]) for name in values if name in made))
            by_axis = all(_is_by_axis(one, constants) for one in (*nodes, node))
            numbers = () if id(node.op) in own else _numbers(node)
            groups[Group(tuple(values), pairs, frozenset(numbers), by_axis)] = None
    known, others = (fixed,), [node for node in left.values() if not _is_one_of(_MOVES, node)]
    apart = [Group(tuple(_values(node, known)), frozenset(), frozenset(), _is_by_axis(node, known)) for node in others]
    return [*groups, *apart]


def images(analyzed: Graph, parts: Sequence[Any], origins: Mapping[str, list[Node]]) -> list[tuple[str, str]]:
    """For normalizations of groups that passes made: what is normalized, in its own shape and in that with an axis of groups."""
    made = [node for part in parts for node in part.graph.nodes if _is_one_of(_GROUPED, node)]
    inner = [one for node in made for one in stood_for(node, origins) if _is_one_of(_INSTANCES, one)]
    return [(one.inputs[0], analyzed.producers[one.inputs[0]].inputs[0]) for one in inner]


def _fixed(graph: Graph) -> Container[str]:
    """The constants, and what is computed of these alone, such as dequantized weights."""
    found = {*graph.constants}
    for node in graph.nodes:
        if found.issuperset(node.reads):
            found.update(node.writes)
    return found


def stood_for(node: Node, origins: Mapping[str, list[Node]]) -> list[Node]:
    """The analyzed nodes that a node of a part stands for."""
    return [*dict.fromkeys(one for name in (node.name, *node.origins) for one in origins.get(name, ()))]


def _is_by_axis(node: Node, constants: Sequence[Container[str]]) -> bool:
    by_constant = any(node.inputs[1] in some for some in constants if len(node.inputs) > 1)
    return node.op.in_place or _is_one_of(_BY_AXIS, node) or (by_constant and _is_one_of(_PRODUCTS, node))


def _is_one_of(names: frozenset[str], node: Node) -> bool:
    return node.op.package in STANDARD and node.op.op_type.removeprefix("Quantized") in names


def _values(node: Node, constants: Sequence[Container[str]]) -> Sequence[str]:
    """The values of a node whose sizes matter. Not the weights of a product or a table, which decide nothing by their sizes, and
    for a view not what says only which shape it has.
    """
    if all(any(name in some for some in constants) for name in node.reads):
        return ()
    if node.op.is_view and not node.post_ops:
        return (*node.inputs[:1], *node.writes)
    if _is_one_of(_WEIGHTED, node):
        weights = {name for name in node.inputs if any(name in some for some in constants)}
        return (*(name for name in node.reads if name not in weights), *node.writes)
    return (*node.reads, *node.writes)


def _numbers(node: Node) -> Iterable[int]:
    if _is_one_of(_GROUPED | _BLOCKS | _SUMS, node):
        return  # the numbers of groups and of rows of a block are those of weights, those of sums the model's
    for name in node.op.attributes:
        if name.endswith(("axis", "axes", "perm")):  # ranks are the same for all sizes
            continue
        value = getattr(node.op, name)
        yield from (one for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, int))
