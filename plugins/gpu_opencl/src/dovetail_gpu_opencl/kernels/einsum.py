"""Einsum: every output element is a sum of products over the labels that it does not have."""

import math
from collections.abc import Sequence

from dovetail.device import Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.broadcast import flat_index, strides_of
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._axis import NUMBERS
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.einsum import Einsum

__all__ = ["KERNELS"]

_MOST = 4


class EinsumKernel(CLKernel):
    """einsum.cl: a work item an element. Labels become strides, so that diagonals and broadcasts cost nothing."""

    name = "einsum"
    halves_by_load = True
    dtypes = NUMBERS

    def check(self, node: TypedNode) -> Refusal | None:
        count = len(node.inputs)
        return None if count <= _MOST else Refusal(Reason.SHAPE, f"{count} inputs; accepted: at most {_MOST}")

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        inputs, dst = [t for t in node.inputs if t is not None], node.outputs[0]
        assert isinstance(node.op, Einsum)
        *terms, kept = node.op.labels(inputs)
        sizes: dict[str, int] = {}
        for term, t in zip(terms, inputs, strict=True):
            for label, size in zip(term, t.dims, strict=True):
                sizes[label] = size if sizes.get(label, 1) == 1 else sizes[label]
        gone = [label for label in sizes if label not in kept]
        defines: dict[str, object] = {
            **storage(dst.dtype),
            "ACC": accumulator(dst.dtype),
            "INPUTS": len(inputs),
            "SIZE": dst.size,
            "COUNT": math.prod(sizes[label] for label in gone),
        }
        for i, (term, t) in enumerate(zip(terms, inputs, strict=True)):
            for macro, labels, index in (("BASE", kept, "o"), ("AT", gone, "r")):
                strides = [_stride(label, term, t) for label in labels]
                defines[f"{macro}_{i}({index})"] = f"({flat_index([sizes[x] for x in labels], strides, f'({index})')})"
        chain = post_ops.epilogue(node)
        arguments = (*(Read(name) for name in node.node.inputs), Write(node.node.outputs[0]), *chain.arguments)
        work, local = spread(dst.size, self.caps)
        return (Launch("einsum.cl", assemble("einsum.cl", defines, chain.source), self.name, arguments, work, local),)


def _stride(label: str, term: Sequence[str], t: TensorType) -> int:
    """The stride of a label in an input: 0 where it broadcasts, the sum of strides along a diagonal."""
    steps = zip(term, t.dims, strides_of(t.dims), strict=True)
    return sum(step for own, size, step in steps if own == label and size > 1)


KERNELS = (EinsumKernel(),)
