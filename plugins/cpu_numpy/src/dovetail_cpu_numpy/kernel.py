"""The base of all kernels: each is asked whether it accepts a node, prepared once a model, and bound once a request."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from dovetail.dataclass import dataclass
from dovetail.device import PLAIN, Accepted, DType, Kernel, LayerConfig, Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.launch import Array, Launch, Spec
from dovetail_cpu_numpy.post_ops import Step, bind_chain, refuse_chain

__all__ = ["BLAS", "Call", "NumpyKernel", "refuse_dtypes"]

BLAS = frozenset({DType.FLOAT32, DType.FLOAT64})
"""The data types that BLAS computes in; narrower floats are left to the reference, which widens them."""


@dataclass(frozen=True, slots=True)
class Call:
    """The arrays of one node in one request.

    The axes of arrays follow the layout of their type: [N, C, H, W] in NHWC is an array of shape [N, H, W, C]. `inputs` has None
    for those left out. `scratch` are the arrays that the kernel declared, `chain_scratch` those of the post-ops (in the same
    memory), `state` is the result of `prepare`.
    """

    node: TypedNode
    inputs: tuple[Array | None, ...]
    outputs: tuple[Array, ...]
    operands: tuple[Array, ...]
    scratch: tuple[Array, ...]
    chain_scratch: tuple[Array, ...]
    state: Any

    def input(self, index: int) -> Array:
        """An input that the operator requires."""
        array = self.inputs[index]
        assert array is not None
        return array

    def optional(self, index: int) -> Array | None:
        """An input that the node may leave out, by name or at the end; None where it does."""
        return self.inputs[index] if index < len(self.inputs) else None

    @property
    def post_ops(self) -> Iterable[Step]:
        """The node's chain with its operands."""
        operands = iter(self.operands)
        return [(p, None if p.kind == "eltwise" else next(operands)) for p in self.node.post_ops]


class NumpyKernel(Kernel):
    """One way to run an operator in NumPy. Without state: one object serves all nodes, requests and threads."""

    elementwise: ClassVar[bool] = False
    """True when element i of the result is made of the elements i of the inputs, so that any layout common to all will do."""
    from_operator: ClassVar[bool] = False
    """True when the computation is the operator's and not this package's."""
    binds_quickly: bool = False
    """Whether `bind` takes some microseconds only, so that each run may call it with large inputs in the caller's memory."""

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether the kernel runs the node and its post-ops can be applied to the result. All shapes are static."""
        refusal = refuse_chain(node)
        if refusal is None:
            refusal = self.refuse(node)
        return Accepted(self.name) if refusal is None else refusal

    @abstractmethod
    def refuse(self, node: TypedNode) -> Refusal | None:
        """Why this kernel does not run the node, regardless of its post-ops; None when it does."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts in which the kernel takes a node that it accepted, the best first."""
        return (LayerConfig.elementwise(node) if self.elementwise else LayerConfig.uniform(node, PLAIN),)

    def reservation(self, node: TypedNode) -> Refusal | None:
        """Why the kernel takes a node that it accepted only in some of its ways; None when in all."""
        return None

    def in_place(self, node: TypedNode) -> Sequence[int]:
        """The inputs in whose memory output 0 may be written, if they have its type and no later node reads them."""
        return ()

    def continued(self, node: TypedNode) -> Mapping[str, str]:
        """The outputs that may be written in the memory of an input, with these inputs: for states of a request."""
        source = next(iter(self.in_place(node)), None)
        return {} if source is None or not node.node.outputs[0] else {node.node.outputs[0]: node.node.inputs[source]}

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        """The arrays needed while the node runs, post-ops left aside; uninitialised at every run."""
        return ()

    def prepare(self, node: TypedNode) -> Any:
        """The state that all requests share, such as weights in another order. Constants are in `node.inputs[i].value`."""
        return None

    @abstractmethod
    def bind(self, call: Call) -> Iterable[Launch]:
        """Launches that compute the outputs, post-ops left aside. They allocate nothing large and look nothing up."""

    def epilogue(self, call: Call) -> Iterable[Step]:
        """Steps on output 0 between `bind` and the post-ops, such as a bias; none that needs temporaries."""
        return ()

    def launches(self, call: Call) -> Iterable[Launch]:
        """All that the node does, in order."""
        yield from self.bind(call)
        if steps := [*self.epilogue(call), *call.post_ops]:
            yield from bind_chain(steps, call.outputs[0], call.outputs[0], call.chain_scratch)


def refuse_dtypes(types: Iterable[TensorType | None], accepted: frozenset[DType] = BLAS) -> Refusal | None:
    """A refusal unless all of `types` that are present have one of the accepted data types."""
    for found in types:
        if found is not None and found.dtype not in accepted:
            return Refusal(Reason.DTYPE, f"{found.dtype}; accepted: {', '.join(sorted(d.value for d in accepted))}")
    return None
