"""The plan report: device, kernel and reason for each node, and what each pass did."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.devices.refusals import Refusal
from dovetail.graph.types import TensorType
from dovetail.html_table import html_table
from dovetail.names import printable
from dovetail.passes.graph_pass import PassReport

__all__ = ["NodePlacement", "PlanReport", "ValuePlacement"]


@dataclass(frozen=True, slots=True)
class ValuePlacement:
    """A value that a node reads or writes: its name in the plan, and its type with the memory layout.

    `offset` is where it starts in the memory of its device, in bytes; None for constants, which are separate. Values that share
    memory (views, results in place) have the same one.
    """

    name: str
    type: TensorType
    offset: int | None

    def as_dict(self) -> dict[str, Any]:
        """Name, type, layout and place as plain values for JSON."""
        return {
            "name": self.name,
            "dtype": self.type.dtype.value,
            "shape": list(self.type.dims),
            "layout": str(self.type.layout),
            "offset": self.offset,
            "bytes": self.type.nbytes,
        }


@dataclass(frozen=True, repr=False, slots=True)
class NodePlacement:
    """Where one node runs and why.

    `origins` are the model's nodes it represents; `provider` the distribution that brings the kernel; `refusals` name each
    device or kernel that was asked before and its answer; `post_op_stop` is the node that could not be fused into this one.
    `rule` is the number of the rule of `dovetail.plugins.rules` that chose among several definitions of the operator, 0 when
    there was one; `dovetail plugins which` shows the others. `inputs` are the values read, operands of post-ops last.
    `holder` is, for a node of a sub-graph, the node that runs it and its attribute: `choose/then_branch`. `flops` are the
    floating-point operations of one run, post-ops not counted; None where they are not known.
    """

    name: str
    op: str
    device: str
    kernel: str
    provider: str
    origins: tuple[str, ...] = ()
    post_ops: tuple[str, ...] = ()
    refusals: tuple[tuple[str, Refusal], ...] = ()
    post_op_stop: tuple[str, Refusal] | None = None
    rule: int = 0
    inputs: tuple[ValuePlacement, ...] = ()
    outputs: tuple[ValuePlacement, ...] = ()
    holder: str = ""
    flops: int | None = None

    def held_by(self, holder: str) -> "NodePlacement":
        """The same for a node of a sub-graph: `holder` is where that is, in the graph to which the report belongs."""
        return replace(self, holder=f"{holder}/{self.holder}" if self.holder else holder)

    @property
    def path(self) -> str:
        """The name, for a node of a sub-graph after the holder: `choose/then_branch/relu1`."""
        return f"{self.holder}/{self.name}" if self.holder else self.name

    def __str__(self) -> str:
        """Node, operator, device, kernel with post-ops, and package: `conv1 (Conv) on ACME.0 by direct + relu of npu 1.0`."""
        return f"{self.path} ({self.op}) on {self.device} by {' + '.join((self.kernel, *self.post_ops))} of {self.provider}"

    def __repr__(self) -> str:
        return f"<NodePlacement {printable(str(self), limit=300)}>"

    def as_dict(self) -> dict[str, Any]:
        """The choice as plain values for JSON: `node` is the path, `stop` and each of `refusals` have reason and detail."""
        stop = self.post_op_stop
        return {
            "node": self.path,
            "operator": self.op,
            "device": self.device,
            "kernel": self.kernel,
            "provider": self.provider,
            "rule": self.rule,
            "origins": list(self.origins),
            "post_ops": list(self.post_ops),
            "stop": None if stop is None else {"node": stop[0], **_reason(stop[1])},
            "refusals": [{"by": by, **_reason(refusal)} for by, refusal in self.refusals],
            "inputs": [value.as_dict() for value in self.inputs],
            "outputs": [value.as_dict() for value in self.outputs],
        }


def _reason(refusal: Refusal) -> dict[str, str]:
    return {"reason": refusal.reason.value, "detail": refusal.detail}


@dataclass(frozen=True, repr=False)
class PlanReport:
    """A plan for one set of input shapes: nodes in execution order, parts, planned peak bytes by device, seconds by step.

    `reorders` is the number of nodes that only change a memory layout. `deferred` is the number of the model's nodes that
    are planned when the data that determines their shapes is there; `CompiledModel.report` adds what was planned last for them.
    `passed_over` has the devices that a kind or a virtual device would have taken before the one it took, with the reason.
    `notes` are remarks of devices on the plan as a whole, and of a virtual device: why it chose these devices, and which device
    has run requests since when.
    """

    nodes: tuple[NodePlacement, ...]
    partitions: int
    memory: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    reorders: int = 0
    deferred: int = 0
    passes: tuple[PassReport, ...] = ()
    passed_over: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """A line for each node."""
        return "\n".join(map(str, self.nodes))

    def __repr__(self) -> str:
        devices = ", ".join(dict.fromkeys(node.device for node in self.nodes))
        return f"<PlanReport: {len(self.nodes)} nodes on {devices or 'no device'}, {self.reorders} reorders>"

    def _repr_html_(self) -> str:
        rows = ((n.path, n.op, n.device, " + ".join((n.kernel, *n.post_ops)), n.provider) for n in self.nodes)
        return html_table(repr(self)[1:-1], ("node", "operator", "device", "kernel", "from"), rows)

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values for JSON, as `dovetail explain --json` names them; passes are left out."""
        return {
            "passed_over": dict(self.passed_over),
            "notes": list(self.notes),
            "partitions": self.partitions,
            "reorders": self.reorders,
            "deferred": self.deferred,
            "memory": dict(self.memory),
            "seconds": dict(self.seconds),
            "nodes": [node.as_dict() for node in self.nodes],
        }

    def followed_by(self, later: "PlanReport") -> "PlanReport":
        """This plan and the one that was made for its deferred nodes, as one."""
        devices = dict.fromkeys((*self.memory, *later.memory))
        steps = dict.fromkeys((*self.seconds, *later.seconds))
        passes = {one.name: one for one in self.passes}
        for one in later.passes:
            passes[one.name] = passes[one.name].and_also(one) if one.name in passes else one
        return PlanReport(
            (*self.nodes, *later.nodes),
            self.partitions + later.partitions,
            {name: self.memory.get(name, 0) + later.memory.get(name, 0) for name in devices},
            {name: self.seconds.get(name, 0.0) + later.seconds.get(name, 0.0) for name in steps},
            self.reorders + later.reorders,
            later.deferred,
            tuple(passes.values()),
            self.passed_over,
            (*self.notes, *later.notes),
        )
