"""MatMul: oneDNN's matmul."""

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernel import PrimitiveKernel, Recipe, given
from dovetail_cpu_onednn.kernels._matmul import Product, collapse, product
from dovetail_cpu_onednn.layouts import plain


class MatrixProduct(PrimitiveKernel):
    """With batches and broadcasting; all rows of the left operand are one matrix where the right one is."""

    name = "matmul"

    def recipe(self, node: TypedNode, free: bool, shared: bool) -> Recipe:
        shapes = collapse(given(node, 0).dims, given(node, 1).dims)
        return product(node, Product(*map(plain, shapes)), shared)


KERNELS = (MatrixProduct(),)
