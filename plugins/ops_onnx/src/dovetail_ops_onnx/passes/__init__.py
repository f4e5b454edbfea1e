"""The graph passes that know the operators of the standard: folding, quantized forms, and recognisers of exported forms."""

import functools
from collections.abc import Callable

from dovetail.graph import Graph, Node
from dovetail.passes import GraphPass, PassContext
from dovetail_ops_onnx.passes.expand_quantized import expand_quantized
from dovetail_ops_onnx.passes.fold_affine import fold_affine
from dovetail_ops_onnx.passes.fold_pad import fold_pad
from dovetail_ops_onnx.passes.fuse_activations import fuse_activations
from dovetail_ops_onnx.passes.fuse_attention import fuse_attention
from dovetail_ops_onnx.passes.fuse_integer_product import fuse_integer_products
from dovetail_ops_onnx.passes.fuse_normalizations import fuse_normalizations
from dovetail_ops_onnx.passes.fuse_quantized import fuse_quantized, hold_quantized, release_quantized
from dovetail_ops_onnx.passes.simplify_transposes import simplify_transposes

__all__ = ["PASSES"]


def _plain(function: Callable[[Graph], Graph]) -> Callable[[Graph, PassContext], Graph]:
    @functools.wraps(function)
    def run(graph: Graph, context: PassContext) -> Graph:
        return function(graph)

    return run


def _asking(function: Callable[[Graph, Callable[[Node, Graph], bool]], Graph]) -> Callable[[Graph, PassContext], Graph]:
    @functools.wraps(function)
    def run(graph: Graph, context: PassContext) -> Graph:
        return function(graph, context.keeps)

    return run


PASSES = (
    GraphPass("hold_quantized", "bind", _plain(hold_quantized), needs_shapes=False),
    GraphPass("fuse_integer_products", "quantize", _asking(fuse_integer_products)),
    GraphPass("expand_quantized", "quantize", _asking(expand_quantized)),
    GraphPass("fuse_quantized", "quantize", _asking(fuse_quantized)),
    GraphPass("release_quantized", "quantize", _plain(release_quantized)),
    GraphPass("fold_pad", "simplify", _plain(fold_pad)),
    GraphPass("fold_affine", "simplify", _plain(fold_affine)),
    GraphPass("fuse_activations", "recognise", _asking(fuse_activations)),
    GraphPass("fuse_normalizations", "recognise", _asking(fuse_normalizations)),
    GraphPass("fuse_attention", "recognise", _asking(fuse_attention)),
    GraphPass("simplify_transposes", "recognise", _asking(simplify_transposes)),
)
"""In the order in which they run. Each applies only where the device has a kernel for the result."""
