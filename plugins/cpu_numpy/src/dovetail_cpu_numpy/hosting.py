"""Runs the host kernels that an operator's class provides (`HostKernel`)."""

from collections.abc import Iterable, Sequence

from dovetail import device
from dovetail.device import HostConfig, HostKernel, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch
from dovetail_cpu_numpy.post_ops import bind_chain
from dovetail_cpu_numpy.reorder import in_layout, logical

__all__ = ["HostedKernel"]


class HostedKernel(device.HostedKernel, NumpyKernel):
    """One of the operator's host kernels."""

    def __init__(self, kernel: HostKernel) -> None:
        super().__init__(kernel)
        # A `bind` of their own is promised to be called once for each request.
        self.binds_quickly = type(kernel).bind is HostKernel.bind

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return self.taken_over(node)

    def prepare(self, node: TypedNode) -> HostConfig:
        """The configuration for the layouts of the node's types."""
        return self.chosen(node)

    def bind(self, call: Call) -> Iterable[Launch]:
        config: HostConfig = call.state
        present = iter(call.outputs)
        outputs = [next(present) if name else None for name in call.node.node.outputs]
        inputs = list(call.inputs)
        for index, port in enumerate(config.inputs):
            if port is not None and port.constant:
                inputs[index] = _constant(call, index)
        return self.steps(call.node, config, inputs, outputs)

    def launches(self, call: Call) -> Iterable[Launch]:
        yield from self.bind(call)
        if call.post_ops:
            dst = logical(call.outputs[0], call.node.outputs[0])
            types = iter(call.node.operands)
            steps = [(p, None if operand is None else logical(operand, next(types))) for p, operand in call.post_ops]
            yield from bind_chain(steps, dst, dst, call.chain_scratch)


def _constant(call: Call, index: int) -> Array:
    """A constant input in its layout; planning may know a value that only an earlier node computes."""
    tensor = call.node.given(index)
    assert tensor.value is not None
    return in_layout(tensor.value, tensor)
