"""Host kernels of operators on devices that keep values in NumPy arrays."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.kernels import Kernel
from dovetail.devices.refusals import Reason, Refusal
from dovetail.devices.typed_node import LayerConfig, TypedNode
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import padded
from dovetail.graph.dtype import DType
from dovetail.graph.graph import AbstractOperator
from dovetail.graph.layout import ANY, PLAIN, Layout
from dovetail.graph.types import TensorType, read_only
from dovetail.operators.host_kernel import HostConfig, HostKernel, PortConfig, prepared

__all__ = ["HostedKernel", "prepare_host_kernel"]

Array = NDArray[Any]


def prepare_host_kernel(
    kernel: HostKernel, node: TypedNode, *, blocked: Collection[int] = ()
) -> tuple[tuple[HostConfig, ...], Refusal | None]:
    """The configurations in which a host kernel takes the node, prepared, and why it refuses the others (None when it takes all).

    `blocked` has the block sizes in which the device keeps float32 values, such as 16 for nChw16c. The layouts of the node's
    types are left out of account, so that the answer is the same before and after the layout pass.
    Raises `OperatorError` naming the node when the kernel breaks its contract.
    """
    present = iter(node.outputs)
    outputs = [next(present) if name else None for name in node.node.outputs]
    with node_context(node.node, node.inputs):
        taken, reasons = prepared(
            kernel, node.op, _plain(padded(node.inputs, node.op.inputs)), _plain(padded(outputs, node.op.outputs)), blocked
        )
    return taken, Refusal(Reason.CONFIGURATION, "; ".join(reasons)) if reasons else None


def _plain(types: Sequence[TensorType | None]) -> list[TensorType | None]:
    return [None if t is None else t.with_layout(PLAIN) for t in types]


class HostedKernel(Kernel):
    """One of the host kernels that an operator has, as a kernel of a device. It decides nothing: these do.

    A device adds `supports` and how it launches. `blocked` has the block sizes in which it keeps float32 values.
    """

    blocked: ClassVar[Collection[int]] = ()
    from_operator = True

    @classmethod
    def of(cls, op: AbstractOperator) -> Sequence[Self]:
        """Those of an operator, in its order."""
        return [cls(kernel) for kernel in op.kernels if isinstance(kernel, HostKernel)] if op.kernels else ()

    def __init__(self, kernel: HostKernel) -> None:
        self._kernel = kernel
        self.name = kernel.name  # type: ignore[misc]  # the only kernels whose name is not their class's

    def refuse(self, node: TypedNode) -> Refusal | None:
        """Why the kernel does not run the node, its post-ops left aside; None when it does in some configuration."""
        if node.op.is_view and not node.post_ops:
            return Refusal(Reason.OPERATOR, "the memory plan makes a view of it")
        taken, refusal = self._prepared(node)
        return None if taken else refusal

    def reservation(self, node: TypedNode) -> Refusal | None:
        """Why it does not take the node in some of its configurations, although it does in others."""
        return self._prepared(node)[1]

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts in which it takes the node, the best first."""
        return [self._layouts(config, node) for config in self._prepared(node)[0]]

    def chosen(self, node: TypedNode) -> HostConfig:
        """The configuration for the layouts of the node's types."""
        return next(config for config in self._prepared(node)[0] if self._layouts(config, node).fits(node))

    def steps(
        self, node: TypedNode, config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Array | None]
    ) -> Iterator[Callable[[], object]]:
        """The function that each run of a request calls, on the arrays of the node's inputs and outputs, None for those left out.

        They are in the order that `HostKernel.execute` describes; the content of constants is there already.
        """
        given = padded([None if array is None else read_only(array) for array in inputs], node.op.inputs)
        results = padded(outputs, node.op.outputs)
        # A configuration may leave out trailing ports.
        for port, dst in zip(config.outputs, results, strict=False):
            if port is not None and dst is not None and port.in_place >= 0:
                source = given[port.in_place]
                assert source is not None
                # The plan shares the memory if the input is not needed afterwards; else this copy replaces it.
                if not np.may_share_memory(source, dst):
                    yield partial(np.copyto, dst, source)
                given[port.in_place] = dst
        yield self._kernel.bind(node.op, config, given, results)

    def taken_over(self, node: TypedNode) -> Sequence[int]:
        """The inputs whose memory output 0 may take over."""
        port = self.chosen(node).outputs[0]
        return () if port is None or port.in_place < 0 else (port.in_place,)

    def continued(self, node: TypedNode) -> Mapping[str, str]:
        """The outputs that may be written in the memory of an input, with these inputs."""
        ports = zip(self.chosen(node).outputs, node.node.outputs, strict=False)
        return {name: node.node.inputs[port.in_place] for port, name in ports if port and name and port.in_place >= 0}

    def _prepared(self, node: TypedNode) -> tuple[tuple[HostConfig, ...], Refusal | None]:
        return prepare_host_kernel(self._kernel, node, blocked=self.blocked)

    def _layouts(self, config: HostConfig, node: TypedNode) -> LayerConfig:
        """The configuration as layouts of the ports. Operands of post-ops have the result's layout, if they have its shape.

        Where any layout will do it may be one in blocks, but these hold float32 only: ports of other types make it plain.
        """
        ports = [port for port in (*config.inputs, *config.outputs) if port is not None and port.layout == ANY]
        whichever = PLAIN if self.blocked and any(port.dtype is not DType.FLOAT32 for port in ports) else ANY

        def side(ports: Sequence[PortConfig | None], names: Sequence[str]) -> list[Layout]:
            filled = [*ports, *[None] * len(names)][: len(names)]
            return [PLAIN if p is None else whichever if p.layout == ANY else p.layout for p in filled]

        written = zip(node.node.outputs, side(config.outputs, node.node.outputs), strict=True)
        outputs = tuple(layout for name, layout in written if name)
        operands = tuple(outputs[0] if t.dims == node.outputs[0].dims else PLAIN for t in node.operands)
        return LayerConfig(tuple(side(config.inputs, node.node.inputs)), outputs, operands)
