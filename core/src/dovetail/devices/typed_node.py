"""A node with the types of everything it touches, and the memory layouts in which a device can take it."""

from collections.abc import Callable, Sequence
from functools import cache

from dovetail.dataclass import dataclass, field
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.layout import ANY, PLAIN, Layout
from dovetail.graph.post_ops import PostOp
from dovetail.graph.types import TensorType

__all__ = ["LayerConfig", "TypedNode"]


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node together with the types of everything it touches; what kernels look at.

    `inputs` has None for inputs left out, `outputs` only those present, `operands` the types that post-ops read.
    """

    node: Node
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    operands: tuple[TensorType, ...] = ()

    @staticmethod
    def of(node: Node, graph: Graph) -> "TypedNode":
        """The node with its types in `graph`. Raises `KeyError` when one has not been inferred."""
        types, names = graph.types, node.inputs
        type_of = types.__getitem__
        inputs = tuple([types[n] if n else None for n in names]) if "" in names else tuple(map(type_of, names))
        return TypedNode(
            node, inputs, tuple(map(type_of, node.writes)), tuple(map(type_of, node.operands)) if node.post_ops else ()
        )

    @property
    def op(self) -> AbstractOperator:
        """The operator with its attributes."""
        return self.node.op

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def given(self, index: int) -> TensorType:
        """The type of an input that the operator requires: no node comes to a device without it."""
        tensor = self.inputs[index]
        assert tensor is not None
        return tensor

    def optional(self, index: int) -> TensorType | None:
        """The type of an input that a node may leave out, by name or at the end; None where it does."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def post_ops(self) -> tuple[PostOp, ...]:
        """The chain attached to the node."""
        return self.node.post_ops

    @property
    def is_static(self) -> bool:
        """True when all shapes are numbers."""
        for t in (*self.inputs, *self.outputs, *self.operands):  # noqa: SIM110  # in half the time
            if t is not None and not t.is_static:
                return False
        return True


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One way in which a device takes a node: the layout of each input, output and post-op operand.

    An input that the node leaves out has any layout. `ANY` means that all places marked so have one and the same layout,
    whichever; then the node never costs a reorder. `cost` says how much slower the node runs so than in the
    device's first configuration, in bytes that could be reordered meanwhile. `holds` is for what takes long to find out: the
    layout pass asks it, if at all, before it settles on the configuration, and takes another one where it returns False. The
    first configuration of a node always holds.
    """

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    operands: tuple[Layout, ...] = ()
    cost: int = 0
    holds: Callable[[], bool] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def uniform(node: TypedNode, layout: Layout) -> "LayerConfig":
        """Everything that the node touches in one layout."""
        return _uniform(layout, len(node.inputs), len(node.outputs), len(node.operands))

    @staticmethod
    def elementwise(node: TypedNode) -> "LayerConfig":
        """For a node that computes element by element: `ANY` for what has the shape of output 0, if the rest are single numbers.

        Where something broadcasts along some of the dimensions, everything is plain.
        """
        result = node.outputs[0].dims
        others = [t for t in (*node.inputs, *node.outputs, *node.operands) if t is None or t.dims != result]
        if not others:
            return LayerConfig.uniform(node, ANY)
        if not all(t is None or t.size == 1 for t in others):
            return LayerConfig.uniform(node, PLAIN)

        def side(types: Sequence[TensorType | None]) -> tuple[Layout, ...]:
            return tuple(ANY if t is not None and t.dims == result else PLAIN for t in types)

        return LayerConfig(side(node.inputs), side(node.outputs), side(node.operands))

    def fits(self, node: TypedNode) -> bool:
        """True when the types of the node have these layouts."""
        types, wanted = (*node.inputs, *node.outputs, *node.operands), (*self.inputs, *self.outputs, *self.operands)
        common = None
        for layout, tensor in zip(wanted, types, strict=True):
            if tensor is not None and layout != tensor.layout:
                if layout != ANY or (common is not None and common != tensor.layout):
                    return False
                common = tensor.layout
        return True


@cache
def _uniform(layout: Layout, inputs: int, outputs: int, operands: int) -> LayerConfig:
    return LayerConfig((layout,) * inputs, (layout,) * outputs, (layout,) * operands)
