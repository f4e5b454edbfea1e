"""SpaceToDepth: one strided copy."""

from collections.abc import Callable, Iterable

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.space_to_depth import SpaceToDepth


class Blocks(StridedCopy):
    """The pixels of each block in their places among the channels."""

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        assert isinstance(node.op, SpaceToDepth)
        b, src, dst = node.op.blocksize, array(node.node.inputs[0]), array(node.node.outputs[0])
        n, c, h, w = dst.shape
        order = (0, 3, 5, 1, 2, 4) if node.op.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        blocks = src.reshape(n, c // b**2, h, b, w, b).transpose(order)
        yield dst.reshape(blocks.shape), blocks


KERNELS = (Blocks(),)
