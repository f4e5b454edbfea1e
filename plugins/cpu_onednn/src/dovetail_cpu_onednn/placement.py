"""A node with the kernel that runs it, and what is decided about it for all sizes."""

from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail.device import NodeReport, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import OnednnKernel
from dovetail_cpu_onednn.threads import SHORT_NS

__all__ = ["Decided", "Placement", "Seen", "notes_of"]


@dataclass(frozen=True, slots=True)
class Decided:
    """Decisions about a node, for compiling it in other sizes: the fields of `Placement`, oneDNN's implementations, and the
    values in whose memory the result may be written. `implementation` is "" for other kernels than primitives.
    """

    kernel: OnednnKernel
    label: str
    refusals: tuple[tuple[str, Refusal], ...]
    implementation: str
    is_reference: bool
    in_place: Sequence[str]


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """A node as it was given and as it runs, with its work: nanoseconds on one thread, and how often threads wait in it.

    It identifies the group of the nodes that are alike.
    """

    given: TypedNode
    node: TypedNode
    work: tuple[float, int]


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with the kernel that runs it, the kernel's label, and the refusals of the kernels before it in the list.

    `threads` is how many threads share the node, `nanoseconds` the estimated time of one; `earlier` is what was decided about it
    in other sizes. Nodes of one `group` are alike (see `repeated`), and so are their placements.
    """

    node: TypedNode
    kernel: OnednnKernel
    label: str
    refusals: tuple[tuple[str, Refusal], ...]
    threads: int = 1
    earlier: Decided | None = None
    nanoseconds: float = 0.0
    group: object = None

    @property
    def in_place(self) -> Sequence[str]:
        """The values in whose memory output 0 may be written."""
        node, known = self.node.node, self.earlier.in_place if self.earlier is not None and self.earlier.implementation else None
        names = self.kernel.in_place(self.node) if known is None else known
        if not names or not node.outputs[0]:
            return ()
        result = self.node.outputs[0]
        if len(names) == 1 and node.inputs[:1] == (names[0],):  # mostly
            given = self.node.inputs[0]
            return (names[0],) if given is result or given == result else ()
        reads, types = (*node.inputs, *node.operands), (*self.node.inputs, *self.node.operands)
        return tuple([name for name in names if (given := types[reads.index(name)]) is result or given == result])

    @property
    def is_short(self) -> bool:
        """Whether the node takes so little time that other threads of Python may wait for it."""
        return self.threads == 1 and self.nanoseconds < SHORT_NS

    @property
    def report(self) -> NodeReport:
        """The plan's report on the node."""
        node = self.node.node
        chain = self.kernel.chain(self.node)
        return NodeReport(node.name, node.op.key, self.label, self.kernel.from_operator, chain, node.origins, self.refusals)


def notes_of(placements: Sequence[Placement], threads: int, in_parts: int, spare: int) -> tuple[str, ...]:
    """The remarks of the report of a plan for so many threads, of whose nodes so many run in parts or with spare rows."""
    count, alone = len(placements), sum(p.threads == 1 for p in placements)
    found = []
    if threads > 1 and alone:
        found.append(f"{alone} of {count} nodes run on one thread, because their work is too small for {threads}")
    if in_parts:
        found.append(f"{in_parts} of {count} nodes run as smaller batches that ran before, until these have run often")
    if spare:
        found.append(f"{spare} of {count} nodes compute rows that nobody reads, until the plan has run often")
    return tuple([f"ONEDNN: {text}" for text in found])
