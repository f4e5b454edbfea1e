"""The graph passes that know the operators of the standard: folding, quantized forms, and recognisers of exported forms."""

from collections.abc import Callable
from importlib import import_module

from dovetail.dataclass import dataclass
from dovetail.graph import Graph
from dovetail.passes import GraphPass, PassContext

__all__ = ["PASSES", "Rewriting"]


@dataclass(frozen=True)
class Rewriting:
    """The function of a pass, for graphs that have a node of one of `operators`; for all if that is empty.

    `module` is imported for the first such graph: all of them, with the operators that they know, are some 50 modules. The
    function takes the graph, and the attribute `takes` of the context if that is not empty. With `states` it is skipped
    for graphs without states.
    """

    module: str
    name: str
    operators: frozenset[str]
    takes: str = "keeps"
    states: bool = False

    @property
    def __wrapped__(self) -> Callable[..., Graph]:
        """The function itself, as `inspect.unwrap` finds it."""
        found: Callable[..., Graph] = getattr(import_module(f"{__name__}.{self.module}"), self.name)
        return found

    def __call__(self, graph: Graph, context: PassContext) -> Graph:
        if (self.states and not graph.states) or not self._applies(graph):
            return graph
        return self.__wrapped__(graph, getattr(context, self.takes)) if self.takes else self.__wrapped__(graph)

    def _applies(self, graph: Graph) -> bool:
        return not self.operators or any(node.op.op_type in self.operators for node in graph.nodes)


def _pass(path: str, stage: str, *op_types: str, takes: str = "keeps", needs_shapes: bool = True) -> GraphPass:
    module, _, name = path.partition(".")
    return GraphPass(name, stage, Rewriting(module, name, frozenset(op_types), takes), needs_shapes=needs_shapes)


_HOLD_CACHES = Rewriting("hold_caches", "hold_caches", frozenset({"Concat"}), takes="", states=True)
_MERGE_EQUAL_NODES = Rewriting("merge_equal_nodes", "merge_equal_nodes", frozenset(), takes="devices")
_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")

PASSES = (
    _pass("capture_invariants.capture_invariants", "bind", "Loop", takes="", needs_shapes=False),
    _pass("fuse_quantized.hold_quantized", "bind", "DequantizeLinear", takes="", needs_shapes=False),
    GraphPass("hold_caches", "type", _HOLD_CACHES, needs_shapes=False),
    GraphPass("merge_equal_nodes", "type", _MERGE_EQUAL_NODES, needs_shapes=False),
    _pass("fuse_integer_product.fuse_integer_products", "quantize", "MatMulInteger"),
    _pass("expand_quantized.expand_quantized", "quantize", "QLinearConv", "QLinearMatMul"),
    _pass("fuse_quantized.fuse_quantized", "quantize", "DequantizeLinear"),
    _pass("fuse_quantized.release_quantized", "quantize", "DequantizeLinear", takes=""),
    _pass("fold_pad.fold_pad", "simplify", "Pad", takes=""),
    _pass("fold_affine.fold_affine", "simplify", "Conv", "ConvTranspose", "Gemm", takes="memory"),
    _pass("simplify_reductions.simplify_reductions", "simplify", *_REDUCTIONS, takes=""),
    _pass("fuse_activations.fuse_activations", "recognise", "Clip", "Erf", "Exp", "HardSigmoid", "Sigmoid", "Tanh"),
    _pass("fuse_normalizations.fuse_normalizations", "recognise", "ReduceMean"),
    _pass("fuse_attention.fuse_attention", "recognise", "Attention", "Softmax"),
    _pass("simplify_transposes.simplify_transposes", "recognise", "Transpose"),
)
"""In the order in which they run. Each applies only where the device has a kernel for the result."""
