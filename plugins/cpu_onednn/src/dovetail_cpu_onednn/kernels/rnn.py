"""RNN: oneDNN's vanilla_rnn."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg, PrimitiveDesc, Stream
from dovetail_cpu_onednn.kernel import NodePlan, Refused
from dovetail_cpu_onednn.kernels._recurrent import BACKWARD, LENGTHS, Array, Recurrent, RecurrentKernel, Roles
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.nan.bounds import MODERATE, are_moderate
from dovetail_cpu_onednn.post_ops import ELTWISE

_ACTIVATIONS = {"tanh": "tanh", "sigmoid": "logistic", "relu": "relu"}


class Vanilla(RecurrentKernel):
    """tanh, the logistic function or relu of x W^T + h R^T + bias.

    oneDNN's relu gives 0 for NaN. No bound of its states is known before they are computed, so they are checked afterwards.
    """

    name = "rnn"
    order = (0,)
    waits = (2, 3)

    def describe(self, op: Recurrent, direction: int, roles: Roles) -> PrimitiveDesc:
        name = _names(op)[direction == BACKWARD and op.direction == "bidirectional"]
        if name not in _ACTIVATIONS:
            raise Refused(Reason.ATTRIBUTE, f"activation {name}; accepted: {', '.join(_ACTIVATIONS)}")
        weights = (roles[Arg.WEIGHTS], roles[Arg.WEIGHTS_1], roles[Arg.BIAS])
        args = (direction, roles[Arg.SRC], roles[Arg.SRC_1], *weights, roles[Arg.DST], roles[Arg.DST_1], 0, 0.0, 0.0)
        return library().describe("vanilla_rnn_forward", INFERENCE, ELTWISE[_ACTIVATIONS[name]], *args)

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        if _has_relu(node) and not node.node.outputs[0]:
            raise Refused(Reason.ATTRIBUTE, "relu without output Y, in which NaN is looked for")
        if _has_relu(node) and super().is_guarded(node):
            raise Refused(Reason.DYNAMIC, "relu with lengths of sequences that are not constant")
        return super().plan(node, free, shared)

    def is_guarded(self, node: TypedNode) -> bool:
        return _has_relu(node) or super().is_guarded(node)

    def safety(self, node: TypedNode, array: Callable[[str], Array], stream: Stream) -> Callable[[], bool]:
        """For relu never: `otherwise` checks after the run."""
        return (lambda: False) if _has_relu(node) else super().safety(node, array, stream)

    def otherwise(
        self,
        node: TypedNode,
        array: Callable[[str], Array],
        unread: Collection[str],
        calls: Sequence[Callable[[], int]],
        reference: Callable[[], int | None],
    ) -> Callable[[], int | None]:
        """For relu the primitives; the reference after them, unless what they read and all states are too small for NaN."""
        if not _has_relu(node):
            return super().otherwise(node, array, unread, calls, reference)
        pairs = [pair for i, pair in enumerate(zip(node.node.inputs, node.inputs, strict=True)) if i != LENGTHS]
        given = [t.value for _, t in pairs if t is not None and t.value is not None]
        if not all(np.abs(value).max(initial=0) < MODERATE for value in given):
            return reference
        names = [name for name, t in pairs if t is not None and t.value is None]
        without_nan = are_moderate(node, (*names, node.node.outputs[0]), array)

        def run() -> int | None:
            status = next(filter(None, (call() for call in calls)), 0)
            return status if status or without_nan() else reference()

        return run


def _names(op: Recurrent) -> list[str]:
    """The activation of each direction."""
    return [name.lower() for name in op.activations or op.defaults * 2]


def _has_relu(node: TypedNode) -> bool:
    assert isinstance(node.op, Recurrent)
    return "relu" in _names(node.op)[: node.op.directions]


KERNELS = (Vanilla(),)
