"""The contract between the core and a device: its description, the device, executables and requests."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.devices.device_array import kept_on_host
from dovetail.devices.memory import MemoryPlan
from dovetail.devices.refusals import Accepted, Refusal
from dovetail.devices.typed_node import LayerConfig, TypedNode
from dovetail.errors import UsageError
from dovetail.graph.graph import Graph
from dovetail.graph.layout import PLAIN
from dovetail.html_table import html_table
from dovetail.phases import clock

if TYPE_CHECKING:
    from dovetail.tracing import PartRecorder

__all__ = ["Device", "DeviceInfo", "Executable", "ExecutableRequest", "NodeReport", "StagedRun", "Unavailable"]


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One device that can be opened.

    `name` is what users type (`OPENCL.1`), `type` the part before the dot, `kind` one of CPU, GPU, NPU, ACCELERATOR.
    `priority` orders devices where the user names none, the greatest first. `details` are shown by `dovetail
    devices`, and plans in files hold for them alone, but for `memory_bytes`, which may be what is free now. `builds_kernels`: the
    first compilation of a model takes seconds, because kernels are built from source.
    """

    name: str
    type: str
    kind: str
    full_name: str
    priority: int = 0
    details: Mapping[str, str | int] = field(default_factory=dict)
    builds_kernels: bool = False

    def _repr_html_(self) -> str:
        rows = (("type", self.type), ("kind", self.kind), *self.details.items())
        return html_table(f"{self.name}: {self.full_name}", ("property", "value"), rows)


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Returned by a device plugin whose hardware or driver is missing: why, and what to do."""

    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True)
class NodeReport:
    """Report of a compiled graph on one node: which kernel of which package runs it, and which refused.

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


@dataclass(frozen=True, slots=True, eq=False)
class StagedRun:
    """A run without copies of its inputs: the caller writes them into `inputs`, and reads `outputs` after `run`.

    All are C-contiguous arrays of the request, in the order of the graph's, which stay where they are; some may share memory.
    A run may write over the inputs, but for the `lasting` ones, by number.
    """

    inputs: tuple[NDArray[Any], ...]
    outputs: tuple[NDArray[Any], ...]
    run: Callable[[], object]
    lasting: frozenset[int] = frozenset()


class ExecutableRequest(ABC):
    """The state of one inference on one device: its buffers and bound launches. Used by one thread at a time.

    `fresh` is true where `run` returns new arrays that no later run touches, so that nobody has to copy them.
    """

    fresh: bool = False
    kept_states: Sequence[int] = ()
    """Positions of inputs that are states of the graph which the device keeps in its memory. `run` returns a `DeviceArray` with
    memory of its `own` as the output that continues such a state; its next run, or one of another request of the device, is
    given that or an array.
    """

    @abstractmethod
    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Run with C-contiguous arrays of exactly the compiled types, in the order of the graph's inputs.

        Returns arrays in the order of the graph's outputs; they are valid until the next run of this request, and may be
        overwritten by it. Inputs are only read. Zero-size arrays are allowed.
        """

    def run_kept(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """As `run`, with inputs that may be a `DeviceArray`, and each array among the results as one in this request's memory.

        The core gives the request no other run before the last of these results is freed. The default uses the host's memory.
        """
        return kept_on_host(self.run, inputs)

    def staged(self) -> StagedRun | None:
        """Runs for loops, whose iterations write into the request's memory. None, the default, where it has no such arrays."""
        return None

    def run_traced(self, inputs: Sequence[NDArray[Any]], recorder: "PartRecorder") -> Sequence[NDArray[Any]]:
        """As `run`, and record what was done when, node by node. The default records the run as a whole."""
        recorder.stamps.append(clock())
        outputs = self.run(inputs)
        recorder.stamps.append(clock())
        from dovetail.tracing import Mark  # here, because few runs are recorded

        recorder.add((Mark("kernel", text=f"{recorder.device}: all of its nodes"),))
        return outputs

    def close(self) -> None:  # noqa: B027  # optional to override: most requests own nothing but memory
        """Free what the request holds."""


class Executable(ABC):
    """A graph compiled for one device; shared by threads. Requests made from it run independently of each other."""

    reports: tuple[NodeReport, ...]
    """One for each node that runs, in execution order."""
    memory: MemoryPlan
    """The plan of intermediate values; `memory.peak` bytes for each request, constants not counted."""
    notes: tuple[str, ...] = ()
    """Remarks for the report: what the device decided for the plan as a whole."""
    provisional: bool = False
    """True where the device took what it had compiled for other sizes in place of what `Device.afresh` would compile."""
    provisional_runs: int = 1
    """Runs of a provisional executable before the core has the final one made: as many as lose the time that this takes."""

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
    streams: int = 1
    """How many requests at once the device is set up for: more of them only wait."""
    round_trip: float = 0.0
    """Seconds that a run takes at least between an array of the host and a result there. Sub-graphs that others behind this
    device, which need none, are estimated to run in less time are left to these."""
    compiles_again: bool = False
    """Whether what `afresh` returns makes the final executable of the provisional one's graph. Else passes run once more, too."""
    takes_any_address: bool = False
    """Whether `compile` takes constants at any address, as in files, and calls `aligned` for those that it reads in place."""

    def for_streams(self, count: int | None) -> "Device":
        """This device for `count` requests at once, among which it divides what they share, such as cores; None: as many as
        give the most results a second. What is returned shares whatever is costly with this one, which closes it.

        By default requests share nothing, and None means one at a time.
        """
        found = copy(self)
        found.streams = count or 1
        return found

    def configured(self, options: Mapping[str, Any]) -> "Device":
        """This device under the properties of one compilation, which then asks and compiles on what is returned.

        For devices whose answers depend on properties; what is returned shares whatever is costly with this one, which closes
        it. Raises `UnknownOption` for a property that the device does not have, `UsageError` for one that makes no sense. The
        default is the device itself.
        """
        return self

    def afresh(self) -> "Device":
        """This device, to plan once more what it compiled provisionally: it decides as in a first plan, however long that takes.

        The core makes that plan on a thread after `provisional_runs` of the provisional one. The default is the device itself.
        """
        return self

    def prescribes(self, domain: str, op_type: str) -> bool:
        """Whether the user gave this device a kernel of their own for operators of this name; by default not.

        No pass merges, expands or rewrites such nodes where the kernel accepts them. No operator class need define them: then
        the output types are those that the model declares.
        """
        return False

    @abstractmethod
    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether the device runs this node as it is, its post-ops included. Called while planning; must not allocate.

        Acceptance must not depend on names of nodes and values, except on which of the values are the same one.

        The fusion pass asks for all that may follow a node at once. Where that is refused, it finds by bisection where the chain
        has to end.
        """

    def accepts(self, node: TypedNode) -> Accepted | Refusal:
        """As `supports`, for a node without post-ops of which only the acceptance matters and not the kernel.

        Override it where finding out which kernel runs a node takes longer than finding out that some kernel does.
        """
        return self.supports(node)

    def lower(self, graph: Graph) -> Graph:
        """The device's own pass over its part of a model, after fusion and before layouts. The default changes nothing.

        For what is the device's affair alone, such as the data types in which it computes. Inputs and outputs keep their order
        and types. New nodes may have operators that only this device knows; it accepts every node of the result, which may be
        taken over for other input sizes as that of a pass with `any_sizes`.
        """
        return graph

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts in which the device takes a node that it accepted, the best first. The default is everything plain.

        The layout pass picks one for each node so that the fewest bytes are reordered. The graph that `compile` gets has the
        layout of every value in its types, and a `Reorder` node wherever a value is needed in another one. How
        values are kept is the device's affair: inputs and outputs of a run are plain, constants of the graph are plain arrays
        whatever the layout of their type, and the reference of `Reorder` returns its input.
        """
        return (LayerConfig.uniform(node, PLAIN),)

    @abstractmethod
    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        """Compile a graph in schedule order, all of whose nodes `supports` accepted and whose types are all static.

        Raises `CompileError` naming the node. An unknown option is an error that lists those known.
        """

    def close(self) -> None:  # noqa: B027  # optional to override
        """Release the device."""
