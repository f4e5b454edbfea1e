"""Gemm: oneDNN's matmul, scaling and C as bias or post-ops."""

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import LOW, NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.kernels._matmul import Product, product
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import BINARY, Appended, times
from dovetail_ops_onnx.gemm import Gemm


class GemmProduct(PrimitiveKernel):
    """alpha * A' B' + C. C is a bias where it is one row and nothing scales the product before it is added."""

    name = "matmul"
    dtypes = LOW

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, Gemm)
        m, n, k = op.sizes(node.given(0), node.given(1))
        src_type, wei_type, dst_type = (number_of(t.dtype) for t in (node.given(0), node.given(1), node.outputs[0]))
        src = library().strided((m, k), (1, m) if op.transA else (k, 1), src_type)
        wei = library().strided((k, n), (1, k) if op.transB else (n, 1), wei_type)
        operands = Product(src, wei, plain((m, n), dst_type))
        before: list[Appended] = [] if op.alpha == 1 else [times(op.alpha)]
        c = node.optional(2)
        if c is None:
            return product(node, operands, shared, before=before)
        if op.beta != 1:
            raise Refused(Reason.ATTRIBUTE, f"beta {op.beta}; accepted: 1")
        if not before and c.dims in ((n,), (1, n)):
            return product(node, operands, shared, bias=2)
        desc = plain((1,) * (2 - c.rank) + c.dims, number_of(c.dtype))
        before.append(("binary", (BINARY["add"], desc)))
        return product(node, operands, shared, before=before, reads=[(len(before) - 1, desc)])


KERNELS = (GemmProduct(),)
