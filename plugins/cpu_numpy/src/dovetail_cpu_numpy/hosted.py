"""Runs a kernel for the host that an operator brings along in its class (`HostKernel`)."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import (
    PLAIN,
    HostConfig,
    HostKernel,
    LayerConfig,
    Layout,
    PortConfig,
    Reason,
    Refusal,
    TypedNode,
    padded,
    prepare_host_kernel,
)
from dovetail.op import Operator
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, copy, read_only
from dovetail_cpu_numpy.layouts import laid_out, logical
from dovetail_cpu_numpy.post_ops import bind_chain

__all__ = ["HostedKernel", "hosted_kernels"]


def hosted_kernels(op: Operator) -> Sequence["HostedKernel"]:
    """The host kernels of an operator, in its order."""
    return [HostedKernel(kernel) for kernel in op.kernels if isinstance(kernel, HostKernel)]


class HostedKernel(NumpyKernel):
    """One of the operator's host kernels. It decides nothing: `prepare_host_kernel` does."""

    from_operator = True

    def __init__(self, kernel: HostKernel) -> None:
        self._kernel = kernel
        self.name = kernel.name  # type: ignore[misc]  # the only kernel whose name is not its class's

    def refuse(self, node: TypedNode) -> Refusal | None:
        if node.op.is_view and not node.post_ops:
            return Refusal(Reason.OPERATOR, "the memory plan makes a view of it")
        taken, refusal = prepare_host_kernel(self._kernel, node)
        return None if taken else refusal

    def reservation(self, node: TypedNode) -> Refusal | None:
        return prepare_host_kernel(self._kernel, node)[1]

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return [_layouts(config, node) for config in prepare_host_kernel(self._kernel, node)[0]]

    def in_place(self, node: TypedNode) -> Sequence[int]:
        port = self.prepare(node).outputs[0]
        return () if port is None or port.in_place < 0 else (port.in_place,)

    def prepare(self, node: TypedNode) -> HostConfig:
        """The configuration for the layouts of the node's types."""
        return next(c for c in prepare_host_kernel(self._kernel, node)[0] if _layouts(c, node).fits(node))

    def bind(self, call: Call) -> Iterable[Launch]:
        op, node, config = call.node.op, call.node.node, call.state
        present = iter(call.outputs)
        outputs = padded([next(present) if name else None for name in node.outputs], op.outputs)
        inputs = padded([None if a is None else read_only(a) for a in call.inputs], op.inputs)
        for index, port in enumerate(config.inputs):
            if port is not None and port.constant:
                inputs[index] = _constant(call, index)
        for port, dst in zip(config.outputs, outputs, strict=False):
            if port is not None and dst is not None and port.in_place >= 0:
                # The plan shares the memory if the input is not needed afterwards; else this copy stands in for it.
                if not np.may_share_memory(inputs[port.in_place], dst):
                    yield copy(dst, call.input(port.in_place))
                inputs[port.in_place] = dst
        yield self._kernel.bind(op, config, inputs, outputs)

    def launches(self, call: Call) -> Iterable[Launch]:
        yield from self.bind(call)
        if call.post_ops:
            dst = logical(call.outputs[0], call.node.outputs[0])
            types = iter(call.node.operands)
            steps = [(p, None if operand is None else logical(operand, next(types))) for p, operand in call.post_ops]
            yield from bind_chain(steps, dst, dst, call.chain_scratch)


def _constant(call: Call, index: int) -> Array:
    """A constant input as it lies in memory; planning may know a value that only a node before this one computes."""
    tensor = call.node.inputs[index]
    assert tensor is not None
    assert tensor.value is not None
    return laid_out(tensor.value, tensor)


def _layouts(config: HostConfig, node: TypedNode) -> LayerConfig:
    """The configuration as layouts of the node's ports. Operands of post-ops lie as the result does, if they are of its shape."""
    inputs = tuple(map(_layout, padded_ports(config.inputs, len(node.inputs))))
    written = zip(node.node.outputs, padded_ports(config.outputs, len(node.node.outputs)), strict=True)
    outputs = tuple(_layout(port) for name, port in written if name)
    result = node.outputs[0]
    operands = tuple(outputs[0] if operand.dims == result.dims else PLAIN for operand in node.operands)
    return LayerConfig(inputs, outputs, operands)


def padded_ports(ports: Sequence[PortConfig | None], count: int) -> Sequence[PortConfig | None]:
    """The first `count` entries, None where a configuration ends earlier."""
    return [*ports, *[None] * count][:count]


def _layout(port: PortConfig | None) -> Layout:
    return PLAIN if port is None else port.layout
