"""Matrix products: constant right operands are brought once into the layout that the primitive chooses."""

import math
from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail.device import TypedNode
from dovetail_cpu_onednn.binding import TAG_ANY, Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, is_constant
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import Appended, Chain, attach

__all__ = ["Product", "collapse", "product"]


@dataclass(frozen=True)
class Product:
    """dst [..., M, N] = src [..., M, K] @ wei [..., K, N] in as few dimensions as will do; each a descriptor of its value."""

    src: MemoryDesc
    wei: MemoryDesc
    dst: MemoryDesc


def collapse(a: Sequence[int], b: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Shapes of the operands and the result of a NumPy matrix product, with as few batch axes as possible."""
    a = (1, *a) if len(a) == 1 else tuple(a)
    b = (*b, 1) if len(b) == 1 else tuple(b)
    m, k, n = a[-2], a[-1], b[-1]
    batch_a, batch_b = a[:-2], b[:-2]
    if math.prod(batch_b) == 1:
        rows = math.prod(batch_a) * m
        return (rows, k), (k, n), (rows, n)
    rank = max(len(batch_a), len(batch_b))
    batch_a = (1,) * (rank - len(batch_a)) + batch_a
    batch_b = (1,) * (rank - len(batch_b)) + batch_b
    if batch_a == batch_b:
        batch_a = batch_b = (math.prod(batch_a),)
    batch = tuple(max(x, y) for x, y in zip(batch_a, batch_b, strict=True))
    return (*batch_a, m, k), (*batch_b, k, n), (*batch, m, n)


def product(
    node: TypedNode,
    operands: Product,
    shared: bool,
    *,
    before: Sequence[Appended] = (),
    bias: int | None = None,
    reads: Sequence[tuple[int, MemoryDesc]] = (),
) -> NodePlan:
    """The plan of a node that is `operands`, then `before`, then its post-ops.

    `bias` is the input that is added to each row; `reads` are inputs that the steps in `before` take, with their index there.
    """
    lib = library()
    dims = operands.dst.dims
    chain: Chain = attach(node, False, shared, before=before, dims=None if dims == node.outputs[0].dims else dims, sums=True)
    fixed = is_constant(node, 1)
    # Constant weights are brought into the data type of the activations too.
    wei = lib.tagged(operands.wei.dims, TAG_ANY, operands.src.dtype) if fixed else operands.wei
    row = None if bias is None else plain((*(1,) * (len(dims) - 1), dims[-1]), number_of(node.given(bias).dtype))
    pd = lib.describe("matmul", operands.src, wei, row, operands.dst, attr=chain.attr)
    arguments = [
        Argument(Arg.SRC, "input", 0, operands.src),
        Argument(Arg.WEIGHTS, "input", 1, operands.wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims) if fixed else None),
        Argument(Arg.DST, "output", 0, operands.dst),
    ]
    if bias is not None and row is not None:
        arguments.append(Argument(Arg.BIAS, "input", bias, row))
    for position, desc in reads:
        arguments.append(Argument(Arg.post_op(position, Arg.SRC_1), "input", 2, desc))
    return NodePlan(chain.stages(pd, arguments, operands.dst), chain.shared)
