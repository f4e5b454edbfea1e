"""The graph passes that know the operators of the standard: folding, quantized forms, and recognisers of exported forms."""

from collections.abc import Callable, Iterable
from importlib import import_module
from itertools import product

from dovetail.dataclass import dataclass
from dovetail.graph import AbstractOperator, DType, Graph
from dovetail.passes import GraphPass, PassContext

__all__ = ["HALVES", "PASSES", "WIDENED", "Rewriting", "is_one"]

HALVES = frozenset({DType.FLOAT16, DType.BFLOAT16})

WIDENED = "@float32"
"""The end of the names of constants of halves that `widen_halves` made float32."""

_PACKAGE = __name__.partition(".")[0]

KEPT_PLANS = 4
"""Plans of a graph whose decisions are kept for other input sizes."""

MOST_GRAPHS = 256
"""Graphs of a model that have such plans: its sub-graphs, and what waits for data, are some."""


def is_one(op: AbstractOperator, *classes: str) -> bool:
    """Whether an operator is of one of these classes of this package. They are not imported for it: few models have them all."""
    return type(op).__name__ in classes and op.package == _PACKAGE


@dataclass(frozen=True)
class Rewriting:
    """The function of a pass, for graphs that have a node of one of `operators`, or one of `pairs`; for all if both are empty.

    `pairs` are operators, each with one that must read its result directly: a Softmax alone is the end of many models.
    `module` is imported for the first such graph: all of them, with the operators that they know, are some 50 modules. The
    function takes the graph, and the attribute `takes` of the context if that is not empty ("context": all of it). With `states`
    it is skipped for graphs without states, with `memory` where the passes' memory lacks that, with `without` where it has that,
    with `halves` for graphs without values of float16 or bfloat16.
    """

    module: str
    name: str
    operators: frozenset[str]
    takes: str = "keeps"
    states: bool = False
    memory: str = ""
    pairs: frozenset[tuple[str, str]] = frozenset()
    halves: bool = False
    without: str = ""

    @property
    def __wrapped__(self) -> Callable[..., Graph]:
        """The function itself, as `inspect.unwrap` finds it."""
        found: Callable[..., Graph] = getattr(import_module(f"{__name__}.{self.module}"), self.name)
        return found

    def __call__(self, graph: Graph, context: PassContext) -> Graph:
        if (self.states and not graph.states) or (self.memory and self.memory not in context.memory) or not self._applies(graph):
            return graph
        if self.without in context.memory:
            return graph
        if not self.takes:
            return self.__wrapped__(graph)
        return self.__wrapped__(graph, context if self.takes == "context" else getattr(context, self.takes))

    def _applies(self, graph: Graph) -> bool:
        if self.halves and HALVES.isdisjoint({tensor.dtype for tensor in graph.types.values()}):
            return False
        if not (self.operators or self.pairs):
            return True
        if not graph.op_types.isdisjoint(self.operators):
            return True
        pairs = {pair for pair in self.pairs if graph.op_types.issuperset(pair)}
        first = {one for one, _ in pairs}
        for node in graph.nodes if pairs else ():
            if node.op.op_type in first:
                readers = (one for name in node.writes for one in graph.consumers.get(name, ()))
                if any((node.op.op_type, one.op.op_type) in pairs for one in readers):
                    return True
        return False


def _pass(
    path: str,
    stage: str,
    *op_types: str,
    takes: str = "keeps",
    needs_shapes: bool = True,
    any_sizes: bool = False,
    pairs: Iterable[tuple[str, str]] = (),
) -> GraphPass:
    module, _, name = path.partition(".")
    run = Rewriting(module, name, frozenset(op_types), takes, pairs=frozenset(pairs))
    return GraphPass(name, stage, run, needs_shapes=needs_shapes, any_sizes=any_sizes)


def _keep_plans(graph: Graph, context: PassContext) -> Graph:
    """Note for take_over that a model is planned for several input sizes."""
    if not all((tensor := graph.types.get(name)) is not None and tensor.is_static for name in graph.inputs):
        context.memory.setdefault("plans", {})
        context.memory.setdefault("parts before", {})
    return graph


# Rows have other lengths in other sizes, and their numbers are constants, which would keep plans from being taken over.
_COMPOSE_MOVES = Rewriting("compose_moves", "compose_moves", frozenset({"Concat", "Slice", "Transpose"}), without="plans")
_HOLD_CACHES = Rewriting("hold_caches", "hold_caches", frozenset({"Concat", "If"}), takes="", states=True)
_MERGE_EQUAL_NODES = Rewriting("merge_equal_nodes", "merge_equal_nodes", frozenset(), takes="prescribed")
_TAKE_OVER = Rewriting("take_over", "take_over", frozenset(), takes="context", memory="plans")
_WIDEN_HALVES = Rewriting("widen_halves", "widen_halves", frozenset(), takes="context", halves=True)
_PADDED = ("AveragePool", "Conv", "MaxPool")
_PRODUCERS, _AFFINE = ("Conv", "ConvTranspose", "Gemm"), ("Add", "BatchNormalization", "Div", "Mul", "Sub")
_IN_ACTIVATIONS = (
    ("Clip", "Div"),
    *product(["Clip", "HardSigmoid", "Sigmoid", "Tanh"], ["Mul"]),
    *product(["Erf", "Exp", "Tanh"], ["Add"]),
)
_WEIGHTS = (("Softmax", "MatMul"), ("Softmax", "IsNaN"))
_STORED = (*product(["Cast"], ["Mul", "Sub"]), *product(["DequantizeLinear"], ["Gather", "MatMul", "Transpose"]))
_SUMS = ("ConvInteger", "MatMulInteger")
_DEQUANTIZED = tuple(product(["DequantizeLinear"], ["Conv", "Gemm", "MatMul"]))
_NORMALIZED = tuple(product(["ConvIntegerToFloat", "DequantizeLinear", "Mul"], ["BatchNormalization"]))
_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum")

PASSES = (
    _pass("capture_invariants.capture_invariants", "bind", "Loop", takes="", needs_shapes=False),
    _pass("settle_dropouts.settle_dropouts", "bind", "Dropout", takes="", needs_shapes=False),
    _pass("stack_sequences.index_slices", "bind", "SplitToSequence", takes="", needs_shapes=False),
    _pass("stack_sequences.stack_sequences", "bind", "Loop", takes="", needs_shapes=False),
    _pass("recognise_distances.recognise_distances", "bind", "Scan", takes="", needs_shapes=False),
    _pass("recognise_segments.recognise_segments", "bind", "Loop", takes="", needs_shapes=False),
    _pass("recognise_bags.recognise_bags", "bind", "ConcatFromSequence", takes="", needs_shapes=False),
    _pass("pack_weights.pack_weights", "bind", takes="", needs_shapes=False, pairs=_STORED),
    _pass("fuse_quantized.hold_quantized", "bind", "DequantizeLinear", takes="", needs_shapes=False),
    GraphPass("keep_plans", "bind", _keep_plans, needs_shapes=False),
    GraphPass("take_over", "bind", _TAKE_OVER, any_sizes=True),
    GraphPass("hold_caches", "type", _HOLD_CACHES, needs_shapes=False),
    GraphPass("merge_equal_nodes", "type", _MERGE_EQUAL_NODES, needs_shapes=False),
    GraphPass("widen_halves", "quantize", _WIDEN_HALVES, any_sizes=True),
    _pass("split_integer_weights.split_integer_weights", "quantize", *_SUMS, takes="context", any_sizes=True),
    _pass("fuse_integer_product.fuse_integer_products", "quantize", *_SUMS, any_sizes=True),
    _pass("expand_quantized.expand_quantized", "quantize", "QLinearConv", "QLinearMatMul", any_sizes=True),
    _pass("quantize_clipped.quantize_clipped", "quantize", any_sizes=True, pairs=[("QuantizeLinear", "Clip")]),
    _pass("move_quantized.move_quantized", "quantize", "DequantizeLinear", any_sizes=True),
    _pass("tabulate_bytes.tabulate_bytes", "quantize", "QuantizeLinear", any_sizes=True),
    _pass("split_integer_weights.split_quantized_weights", "quantize", takes="context", any_sizes=True, pairs=_DEQUANTIZED),
    _pass("split_norm.split_norm", "quantize", takes="", any_sizes=True, pairs=_NORMALIZED),
    _pass("fuse_quantized.fuse_quantized", "quantize", "DequantizeLinear", any_sizes=True),
    _pass("tabulate_bytes.tabulate_chains", "quantize", "QuantizeLinear", any_sizes=True),
    _pass("fuse_quantized.release_quantized", "quantize", "DequantizeLinear", takes="", any_sizes=True),
    _pass("round_quantized.round_quantized", "simplify", "QuantizeLinear", any_sizes=True),
    _pass("split_rows.split_rows", "simplify", "MatMulBlocks", any_sizes=True),
    _pass("fold_pad.fold_pad", "simplify", takes="", any_sizes=True, pairs=product(["Pad"], _PADDED)),
    _pass("fold_crop.fold_crop", "simplify", takes="", any_sizes=True, pairs=product(["Conv", "ConvTranspose"], ["Slice"])),
    _pass("fold_affine.fold_affine", "simplify", takes="memory", any_sizes=True, pairs=product(_PRODUCERS, _AFFINE)),
    _pass("fold_norm.fold_norm", "simplify", "BatchNormalization", takes="memory", any_sizes=True),
    _pass("simplify_einsum.simplify_einsum", "simplify", "Einsum", takes="", any_sizes=True),
    _pass("nest_concats.nest_concats", "simplify", "Concat", takes="", any_sizes=True),
    _pass("simplify_reductions.simplify_reductions", "simplify", *_REDUCTIONS, takes="", any_sizes=True),
    _pass("simplify_gathers.simplify_gathers", "simplify", "Gather", takes="", any_sizes=True),
    _pass("fuse_activations.fuse_activations", "recognise", any_sizes=True, pairs=_IN_ACTIVATIONS),
    _pass("fuse_normalizations.fuse_normalizations", "recognise", "InstanceNormalization", "ReduceMean", any_sizes=True),
    _pass("fuse_attention.fuse_attention", "recognise", "Attention", any_sizes=True, pairs=_WEIGHTS),
    _pass("simplify_transposes.simplify_transposes", "recognise", "Transpose", any_sizes=True),
    GraphPass("compose_moves", "recognise", _COMPOSE_MOVES, any_sizes=True),
    _pass("compute_before_views.compute_before_views", "recognise", "Flatten", "Reshape", takes="", any_sizes=True),
)
"""In the order in which they run. Each applies only where the device has a kernel for the result."""
