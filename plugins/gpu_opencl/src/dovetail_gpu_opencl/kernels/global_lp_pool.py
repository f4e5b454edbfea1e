"""GlobalLpPool."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._reduce import GlobalPool
from dovetail_ops_onnx.global_lp_pool import GlobalLpPool

__all__ = ["KERNELS"]


class GlobalLp(GlobalPool):
    """(sum of |x|^p)^(1 / p)."""

    def __init__(self, p: int) -> None:
        element, end = {1: ("fabs(x)", "a"), 2: ("x * x", "sqrt(a)")}.get(p, (f"pown(fabs(x), {p})", f"pow(a, (ACC)1 / {p})"))
        super().__init__("a + b", "0", element, end)
        self._p = p

    def check(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, GlobalLpPool)
        return super().check(node) if node.op.p == self._p else Refusal(Reason.ATTRIBUTE, f"p {node.op.p}")


KERNELS = tuple(GlobalLp(p) for p in (1, 2, 3, 4))
