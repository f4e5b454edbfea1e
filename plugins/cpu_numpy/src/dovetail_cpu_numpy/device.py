"""The device NUMPY."""

import platform
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.device import PLAIN, Accepted, Device, DeviceInfo, Graph, LayerConfig, Refusal, TypedNode
from dovetail.locks import cached_property
from dovetail_cpu_numpy.options import Options

if TYPE_CHECKING:
    from dovetail_cpu_numpy.executable import NumpyExecutable

__all__ = ["NumpyDevice", "describe"]


def describe() -> DeviceInfo:
    """The device NUMPY of this machine."""
    return DeviceInfo(
        "NUMPY", "NUMPY", "CPU", f"NumPy on {platform.machine() or 'this CPU'}", priority=0, details={"numpy": np.__version__}
    )


class NumpyDevice(Device):
    """Runs each operator by the first kernel that accepts it.

    These are the kernels of its stem, the host kernels that it provides, its chain of post-ops, and at last its reference.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info

    @cached_property
    def _kernels(self) -> Any:
        # Each session opens this device for what another one refuses; most never ask it, and load no kernels.
        from dovetail_cpu_numpy import placement

        return placement

    def configured(self, options: Mapping[str, Any]) -> "NumpyDevice":
        """The device itself. Raises `UsageError` for an unknown option before a model is read."""
        Options.read(options)
        return self

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Everything with static shapes and a reference, unless a post-op does not fit."""
        choice = self._kernels.chosen(node)
        return choice if isinstance(choice, Refusal) else Accepted(choice.kernel.name, choice.kernel.from_operator)

    def accepts(self, node: TypedNode) -> Accepted | Refusal:
        """As `supports`, without a look at the kernels of a node that its reference would run in any case."""
        return self._kernels.by_reference(node) or self.supports(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts of the kernel that runs the node: declared for host kernels, any for elementwise ones, else plain."""
        choice = self._kernels.chosen(node)
        return (LayerConfig.uniform(node, PLAIN),) if isinstance(choice, Refusal) else choice.kernel.configurations(node)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> "NumpyExecutable":
        """Choose kernels, plan memory, prepare weights. Raises `CompileError` naming a refused node, `UsageError` for options."""
        made: NumpyExecutable = self._kernels.compiled(graph, {*Options.read(options).STUB})
        return made
