"""All that a device author imports: the contracts between the core and a device.

A device says of each node whether it runs it (`supports`), and compiles a graph of nodes that it accepted (`compile`). How
it chooses kernels is its own affair; `choose` and `KernelTable` are the ready-made way: an ordered list of kernels for each
operator, in a module named after the operator's stem.
"""

import enum
import importlib
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

from numpy.typing import NDArray

from dovetail._host_kernel import HostConfig, HostKernel, PortConfig, prepared
from dovetail._node_reference import node_reference
from dovetail._opaque import OpaqueOperator
from dovetail._ports import padded
from dovetail._quantized import IntegerProduct, Quantized, QuantizedStep, Scaling
from dovetail._reorder import Reorder
from dovetail.errors import DeviceError, DeviceUnavailable, OutOfMemory, PluginError, UsageError
from dovetail.graph.dtype import DType
from dovetail.graph.layout import ANY, BFYX, BYXF, FYXB, NHWC, PLAIN, YXFB, Layout
from dovetail.graph.model import Graph, Node
from dovetail.graph.post_ops import Binary, Eltwise, PostOp, PostOps, Prelu, Sum
from dovetail.graph.types import Shape, TensorType
from dovetail.op import KernelSource, OpenCLKernel, Operator
from dovetail.passes._context import node_context
from dovetail.passes.constant_folding import run_reference
from dovetail.passes.memory import MemoryPlan, plan_graph, plan_memory, plan_regions, share_storage

__all__ = [
    "ANY",
    "BFYX",
    "BYXF",
    "FYXB",
    "NHWC",
    "PLAIN",
    "REFERENCE_KERNEL",
    "YXFB",
    "Accepted",
    "Binary",
    "Choice",
    "DType",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceUnavailable",
    "Eltwise",
    "Executable",
    "ExecutableRequest",
    "Graph",
    "HostConfig",
    "HostKernel",
    "IntegerProduct",
    "Kernel",
    "KernelSource",
    "KernelTable",
    "LayerConfig",
    "Layout",
    "MemoryPlan",
    "Node",
    "NodeReport",
    "OpaqueOperator",
    "OpenCLKernel",
    "Operator",
    "OutOfMemory",
    "PortConfig",
    "PostOp",
    "PostOps",
    "Prelu",
    "Quantized",
    "QuantizedStep",
    "Reason",
    "Refusal",
    "Reorder",
    "Scaling",
    "Shape",
    "Sum",
    "TensorType",
    "TypedNode",
    "Unavailable",
    "choose",
    "node_context",
    "node_reference",
    "padded",
    "plan_graph",
    "plan_memory",
    "plan_regions",
    "prepare_host_kernel",
    "run_reference",
    "share_storage",
]

REFERENCE_KERNEL = "ref"
"""What reports call the kernel that runs an operator's NumPy reference."""


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device that can be opened.

    `name` is what users type (`OPENCL.1`), `type` the part before the dot, `kind` one of CPU, GPU, NPU, ACCELERATOR.
    `priority` orders devices for AUTO, the greatest first. `details` are shown by `dovetail devices`.
    """

    name: str
    type: str
    kind: str
    full_name: str
    priority: int = 0
    details: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Returned by a device plugin whose hardware or driver is not there: why, and what to do."""

    reason: str
    hint: str = ""


class Reason(enum.Enum):
    """The closed vocabulary of refusals."""

    OPERATOR = "no kernel for this operator"
    DTYPE = "data type"
    SHAPE = "shape"
    ATTRIBUTE = "attribute"
    LAYOUT = "memory layout"
    POST_OP = "post-op"
    DYNAMIC = "shape known only at run time"
    CAPABILITY = "the device lacks a capability"
    MEMORY = "memory"
    CONFIGURATION = "no configuration of the operator's kernel"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a kernel or device does not run a node. False in a condition, so `a or b` drops a refusal: use `is not None`."""

    reason: Reason
    detail: str = ""

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.detail else self.reason.value


@dataclass(frozen=True, slots=True)
class Accepted:
    """A kernel or device runs a node; `kernel` names how. True in a condition.

    `from_operator` as in `NodeReport`: the kernel is the operator's own and not one of the device package.
    """

    kernel: str = ""
    from_operator: bool = False


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A node together with the types of everything it touches; what kernels look at.

    `inputs` has None for inputs left out, `outputs` only those present, `operands` the types that post-ops read.
    """

    node: Node
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType, ...]
    operands: tuple[TensorType, ...] = ()

    @staticmethod
    def of(node: Node, graph: Graph) -> "TypedNode":
        """The node with its types in `graph`. Raises `KeyError` when one has not been inferred."""
        return TypedNode(
            node,
            tuple(graph.type_of(name) for name in node.inputs),
            tuple(graph.types[name] for name in node.writes),
            tuple(graph.types[name] for name in node.operands),
        )

    @property
    def op(self) -> Operator:
        """The operator with its attributes."""
        return self.node.op

    @property
    def name(self) -> str:
        """The node's name."""
        return self.node.name

    def given(self, index: int) -> TensorType:
        """The type of an input that the operator requires: no node comes to a device without it."""
        tensor = self.inputs[index]
        assert tensor is not None
        return tensor

    @property
    def post_ops(self) -> tuple[PostOp, ...]:
        """The chain attached to the node."""
        return self.node.post_ops

    @property
    def is_static(self) -> bool:
        """True when all shapes are numbers."""
        return all(t.is_static for t in (*self.inputs, *self.outputs, *self.operands) if t is not None)


@dataclass(frozen=True, slots=True)
class LayerConfig:
    """One way in which a device takes a node: the layout of each input, output and post-op operand.

    An input that the node leaves out has any layout. `ANY` means that all places marked so have one and the same layout,
    whichever; then the node costs no reorder wherever it stands. `cost` says how much slower the node runs so than in the
    device's first configuration, in bytes that could be reordered meanwhile.
    """

    inputs: tuple[Layout, ...]
    outputs: tuple[Layout, ...]
    operands: tuple[Layout, ...] = ()
    cost: int = 0

    @staticmethod
    def uniform(node: TypedNode, layout: Layout) -> "LayerConfig":
        """Everything that the node touches in one layout."""
        return LayerConfig((layout,) * len(node.inputs), (layout,) * len(node.outputs), (layout,) * len(node.operands))

    @staticmethod
    def elementwise(node: TypedNode) -> "LayerConfig":
        """For a node that computes element by element: `ANY` for what has the shape of output 0, if the rest are single numbers.

        Where something broadcasts along some of the dimensions, everything is plain.
        """
        result = node.outputs[0].dims
        touched = [t for t in (*node.inputs, *node.outputs, *node.operands) if t is not None]
        if not all(t.dims == result or t.size == 1 for t in touched):
            return LayerConfig.uniform(node, PLAIN)

        def side(types: Sequence[TensorType | None]) -> tuple[Layout, ...]:
            return tuple(ANY if t is not None and t.dims == result else PLAIN for t in types)

        return LayerConfig(side(node.inputs), side(node.outputs), side(node.operands))

    def fits(self, node: TypedNode) -> bool:
        """True when the types of the node have these layouts."""
        given = [t and t.layout for t in (*node.inputs, *node.outputs, *node.operands)]
        pairs = [(w, g) for w, g in zip((*self.inputs, *self.outputs, *self.operands), given, strict=True) if g is not None]
        return all(w in (ANY, g) for w, g in pairs) and len({g for w, g in pairs if w == ANY}) <= 1


class Kernel(ABC):
    """One way to run an operator on a device. Subclasses add what their device needs to prepare and launch it."""

    name: ClassVar[str]

    @abstractmethod
    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether this kernel runs the node as it is, its post-ops included."""

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


K = TypeVar("K", bound=Kernel)


@dataclass(frozen=True, slots=True)
class Choice(Generic[K]):
    """The kernel that was chosen, why those before it in the list were not, and what it calls itself on this node."""

    kernel: K
    refusals: tuple[tuple[str, Refusal], ...] = ()
    label: str = ""


def choose(kernels: Sequence[K], node: TypedNode) -> Choice[K] | Refusal:
    """The first kernel of an ordered list that accepts the node.

    When none does: the refusal of the last one with a reason other than OPERATOR, else of the last, else OPERATOR.
    """
    refusals: list[tuple[str, Refusal]] = []
    for kernel in kernels:
        answer = kernel.supports(node)
        if isinstance(answer, Accepted):
            return Choice(kernel, tuple(refusals), answer.kernel)
        refusals.append((kernel.name, answer))
    telling = [refusal for _, refusal in refusals if refusal.reason is not Reason.OPERATOR]
    return telling[-1] if telling else Refusal(Reason.OPERATOR, node.op.key)


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


class KernelTable(Generic[K]):
    """The kernels of a device package: `<package>/<stem>.py` holds `KERNELS`, an ordered sequence. Loaded on first use."""

    def __init__(self, package: str) -> None:
        self._package = package
        self._found: dict[str, tuple[K, ...]] = {}

    def __getitem__(self, stem: str) -> tuple[K, ...]:
        """The kernels for operators of this stem; empty when there is no such module."""
        if stem not in self._found:
            module = f"{self._package}.{stem}"
            exists = not stem.startswith("_") and find_spec(module) is not None
            self._found[stem] = _kernels_in(module) if exists else ()
        return self._found[stem]


def _kernels_in(module: str) -> tuple[Any, ...]:
    kernels = getattr(importlib.import_module(module), "KERNELS", None)
    if not isinstance(kernels, tuple | list):
        raise PluginError(f"{module} has no KERNELS", hint="define KERNELS, the kernels in the order in which they are tried")
    return tuple(kernels)


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a compiled graph says of one node: which kernel of which package runs it, and which refused.

    `origins` are the model's nodes that were merged into it. `from_operator` is true when the kernel is the operator's own
    (its reference, or a kernel source in its class) and not one of the device package.
    """

    name: str
    op: str
    kernel: str
    from_operator: bool = False
    post_ops: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    refusals: tuple[tuple[str, Refusal], ...] = ()


class ExecutableRequest(ABC):
    """The state of one inference on one device: its buffers and bound launches. Used by one thread at a time."""

    @abstractmethod
    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Run with C-contiguous arrays of exactly the compiled types, in the order of the graph's inputs.

        Returns arrays in the order of the graph's outputs; they are valid until the next run of this request, and may be
        overwritten by it. Inputs are only read. Zero-size arrays are allowed.
        """

    def close(self) -> None:  # noqa: B027  # optional to override: most requests own nothing but memory
        """Free what the request holds."""


class Executable(ABC):
    """A graph compiled for one device; shared by threads. Requests made from it run independently of each other."""

    reports: tuple[NodeReport, ...]
    """One for each node that runs, in execution order."""
    memory: MemoryPlan
    """The plan of intermediate values; `memory.peak` bytes for each request, constants not counted."""

    @abstractmethod
    def create_request(self) -> ExecutableRequest:
        """A new request with buffers of its own."""

    def reproduce(self, node: str, inputs: Sequence[NDArray[Any]], folder: Path) -> Path:
        """Write the kernels of one node into an empty folder, as a program that runs alone and checks itself; returns its path.

        `inputs` are those of the graph, from which the node's real inputs are computed. Raises `UsageError` where the node has
        no kernel, or the device writes no programs, which is the default.
        """
        raise UsageError(f"the device that runs node {node!r} writes no programs for single nodes")

    def close(self) -> None:  # noqa: B027  # optional to override
        """Free what the executable holds. Requests must not be used afterwards."""


class Device(ABC):
    """An opened device. Methods may be called from any thread."""

    info: DeviceInfo

    def configured(self, options: Mapping[str, Any]) -> "Device":
        """This device under the properties of one compilation, which then asks and compiles on what is returned.

        For devices whose answers depend on properties; what is returned shares whatever is costly with this one, which closes
        it. Raises `UnknownOption` for a property that the device does not have, `UsageError` for one that makes no sense. The
        default is the device itself.
        """
        return self

    def prescribes(self, domain: str, op_type: str) -> bool:
        """Whether the user gave this device a kernel of their own for operators of this name. The default is no.

        No pass merges, expands or rewrites such nodes where the kernel accepts them. No operator class need define them: then
        the output types are those that the model declares.
        """
        return False

    @abstractmethod
    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether the device runs this node as it is, its post-ops included. Called while planning; must not allocate.

        The fusion pass grows a node's chain one post-op at a time and asks again: a refusal ends the chain there.
        """

    def lower(self, graph: Graph) -> Graph:
        """The device's own pass over its part of a model, after fusion and before layouts. The default changes nothing.

        For what is the device's affair alone, such as the data types in which it computes. Inputs and outputs keep their order
        and types. New nodes may have operators that only this device knows; it accepts every node of the result.
        """
        return graph

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts in which the device takes a node that it accepted, the best first. The default is everything plain.

        The layout pass picks one for each node so that the fewest bytes are reordered. The graph that `compile` gets has the
        layout of every value in its types, and a `Reorder` node wherever a value is needed in another one.
        """
        return (LayerConfig.uniform(node, PLAIN),)

    @abstractmethod
    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        """Compile a graph in schedule order, all of whose nodes `supports` accepted and whose types are all static.

        Raises `CompileError` naming the node. An unknown option is an error that lists those known.
        """

    def close(self) -> None:  # noqa: B027  # optional to override
        """Release the device."""
