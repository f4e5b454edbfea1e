"""Conv: oneDNN's convolution, several of them for depthwise ones over volumes."""

from collections.abc import Sequence

from dovetail.device import BYXF, PLAIN, LayerConfig, TypedNode
from dovetail_cpu_onednn.binding import Alg, Unimplemented
from dovetail_cpu_onednn.kernel import NodePlan, Refused
from dovetail_cpu_onednn.kernels._conv import ConvKernel
from dovetail_cpu_onednn.kernels._volumes import VOLUMES, by_images, is_by_images, waits


class Convolution(ConvKernel):
    """Convolution in one to three dimensions, with groups and dilation."""

    name = "convolution"
    primitive = "convolution_forward"
    algorithm = Alg.CONVOLUTION_DIRECT

    def instead(self, node: TypedNode, free: bool) -> NodePlan | None:
        if node.given(0).rank != VOLUMES:  # mostly
            return None
        try:
            return by_images(node, free)
        except (Refused, Unimplemented):
            return None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        if node.given(0).rank == VOLUMES:
            found = self._attempt(node, lambda n: self.plan(n, True, False))
            if isinstance(found, NodePlan) and is_by_images(found):
                return (LayerConfig((BYXF, *(PLAIN,) * (len(node.inputs) - 1)), (BYXF,)),)
        return super().configurations(node)

    def barriers(self, node: TypedNode) -> int:
        return waits(node)


KERNELS = (Convolution(),)
