"""DepthToSpace: one strided copy."""

from collections.abc import Callable, Iterable

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.depth_to_space import DepthToSpace


class Blocks(StridedCopy):
    """The blocks of the channels in their places among the pixels."""

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        assert isinstance(node.op, DepthToSpace)
        b, src, dst = node.op.blocksize, array(node.node.inputs[0]), array(node.node.outputs[0])
        n, c, h, w = dst.shape
        if node.op.mode == "DCR":
            blocks = src.reshape(n, b, b, c, h // b, w // b).transpose(0, 3, 4, 1, 5, 2)
        else:
            blocks = src.reshape(n, c, b, b, h // b, w // b).transpose(0, 1, 4, 2, 5, 3)
        yield dst.reshape(n, c, h // b, b, w // b, b), blocks


KERNELS = (Blocks(),)
