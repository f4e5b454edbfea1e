"""MatMul: oneDNN's matmul."""

from dovetail.device import TypedNode
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import LOW, NodePlan, PrimitiveKernel
from dovetail_cpu_onednn.kernels._matmul import Product, collapse, product
from dovetail_cpu_onednn.node_plans import cached_plan


class MatrixProduct(PrimitiveKernel):
    """With batches and broadcasting; all rows of the left operand are one matrix where the right one is."""

    name = "matmul"
    dtypes = LOW

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        types = (node.given(0), node.given(1), node.outputs[0])
        shapes = collapse(types[0].dims, types[1].dims)
        descs = (plain(shape, number_of(t.dtype)) for shape, t in zip(shapes, types, strict=True))
        return product(node, Product(*descs), shared)


KERNELS = (MatrixProduct(),)
