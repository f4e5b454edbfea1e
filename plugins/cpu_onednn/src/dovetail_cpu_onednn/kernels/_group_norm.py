"""Normalisation over groups of channels: rows of a layer normalisation, then a scale and a shift for each channel."""

import math

from dovetail.device import TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, attach

__all__ = ["group_norm"]


def group_norm(node: TypedNode, groups: int, epsilon: float, parts: int) -> NodePlan:
    """Input 0, plain, normalised over each group of its channels; inputs 1 and 2 have a number for each of `parts` of them."""
    lib, dims = library(), node.given(0).dims
    rows = plain((dims[0] * groups, math.prod(dims[1:]) // groups))
    norm = lib.describe("layer_normalization_forward", INFERENCE, rows, rows, None, epsilon, 0)
    size = math.prod(dims[1:]) // parts
    # In two dimensions where they are enough: see `is_one_element_a_channel`.
    rest = () if size == 1 else (size,)
    whole, vector = plain((dims[0], parts, *rest)), plain((1, parts, *(1,) * len(rest)))
    chain = attach(node, False, False, before=[("binary", (BINARY["add"], vector))], dims=whole.dims)
    scale = lib.describe("binary", BINARY["mul"], whole, vector, whole, attr=chain.attr)
    arguments = [
        Argument(Arg.SRC, "output", 0, whole),
        Argument(Arg.SRC_1, "input", 1, vector),
        Argument(Arg.DST, "output", 0, whole),
        Argument(Arg.post_op(0, Arg.SRC_1), "input", 2, vector),
    ]
    first = Stage(norm, (Argument(Arg.SRC, "input", 0, rows), Argument(Arg.DST, "output", 0, rows)))
    return NodePlan((first, *chain.stages(scale, arguments, whole)), chain.shared)
