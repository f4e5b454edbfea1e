"""Estimated seconds of nodes on devices and of values between them: what a placement makes least.

The figures are rough on purpose: they decide between devices that differ by factors, and nothing but speed depends on them.
"""

from collections.abc import Mapping

from dovetail.dataclass import dataclass
from dovetail.virtual import Accepted, DeviceInfo, Graph, Node, Refusal

__all__ = ["Speed", "node_seconds", "speeds", "transfer_seconds", "value_bytes"]

REFERENCE_SLOWER = 50.0
"""How much slower the NumPy reference of an operator is than a kernel of the device, where it is listed as `ref`."""

REFERENCE = "ref"


@dataclass(frozen=True)
class Speed:
    """A device: operations a second, bytes of its memory a second, seconds to start a kernel.

    `link` are bytes a second between it and the host, `latency` the seconds that a transfer takes at least.
    """

    flops: float
    memory: float
    launch: float
    link: float
    latency: float


_CPU = Speed(flops=1e11, memory=2e10, launch=2e-6, link=2e10, latency=5e-6)
# An H200: ResNet-50 with batch 8 in 2.1 ms, and 6.4 MB by way of the host's pageable memory to another one in 2.15 ms.
_GPU = Speed(flops=3e13, memory=2e12, launch=5e-6, link=6e9, latency=3e-5)
_KINDS = {"CPU": _CPU, "GPU": _GPU}


def speeds(infos: Mapping[str, DeviceInfo]) -> dict[str, Speed]:
    """The speed of each device by its kind. Of two devices of a kind that differ, the one with the greater priority is faster."""
    order = sorted({info.priority for info in infos.values()}, reverse=True)
    found = {}
    for name, info in infos.items():
        base, slower = _KINDS.get(info.kind, _CPU), 4.0 ** order.index(info.priority)
        found[name] = Speed(base.flops / slower, base.memory, base.launch, base.link, base.latency)
    return found


def value_bytes(graph: Graph, name: str) -> int:
    """The bytes of a value; of one with open dimensions, those of one number."""
    found = graph.types[name]
    return found.nbytes if found.is_static else found.dtype.itemsize


def node_seconds(graph: Graph, node: Node, answer: Accepted | Refusal, speed: Speed) -> float:
    """The estimate for one node on a device that accepted it."""
    types = [graph.types[name] if name else None for name in node.inputs]
    outputs = [graph.types[name] for name in node.writes]
    operations = node.op.flops(types, outputs) if all(t is None or t.is_static for t in (*types, *outputs)) else 1
    moved = 0 if node.op.is_view else sum(value_bytes(graph, name) for name in (*node.reads, *node.writes))
    factor = REFERENCE_SLOWER if getattr(answer, "kernel", "") == REFERENCE else 1.0
    return speed.launch + factor * max(operations / speed.flops, moved / speed.memory)


def transfer_seconds(nbytes: int, source: Speed, target: Speed) -> float:
    """The estimate for a value that moves between two devices, by way of the host."""
    return source.latency + target.latency + nbytes / source.link + nbytes / target.link
