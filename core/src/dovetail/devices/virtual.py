"""The contract for virtual devices, which run a model on other devices: the device, what it compiles, and the session it uses.

A virtual device is a plugin of the group `dovetail.virtual_devices`. Its entry name is the word that users write before the
colon: `MIRROR:A,B` asks the entry `mirror`, with the arguments `A,B`. The entry `default` serves models for which no device is
named.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

from dovetail.dataclass import dataclass, field
from dovetail.devices.contract import DeviceInfo, ExecutableRequest
from dovetail.devices.refusals import Accepted, Refusal
from dovetail.graph.graph import Graph
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType
from dovetail.protocol import Protocol

__all__ = ["Answers", "Composite", "Part", "PartRequest", "Placement", "Session", "Targets", "VirtualDevice"]

Properties = Mapping[str, Any]
Shapes = Mapping[str, Sequence[int]]

Answers = Mapping[str, Mapping[str, Accepted | Refusal]]
"""Node name -> device -> its answer; the devices in order of preference."""

Placement = Callable[[Graph, Answers], Mapping[str, str]]
"""Chooses the device of each node that any accepts: node name -> device, one that accepted it. The graph has all types."""


@dataclass(frozen=True)
class Targets:
    """Real devices that run a model together, the preferred one first, and the properties for that one.

    `passed_over` has the devices that would have gone before, with the reason. `place` gives each node its device: it makes a
    placement that keeps the affinities of the model (`Model.affinities`). None gives a node to the first that accepts it.
    `requests` at once keep the devices busy; 0 for as many as the first one finds best.
    """

    devices: tuple[str, ...]
    properties: Properties = field(default_factory=dict)
    passed_over: Mapping[str, str] = field(default_factory=dict)
    place: Callable[[Mapping[str, str]], Placement] | None = None
    requests: int = 0


class PartRequest(Protocol):
    """A request of a `Part`. Used by one thread at a time."""

    def forward(self, values: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """Run with values that `ExecutableRequest.run` of a composite was given, under its limits; the results likewise.

        With `on_device` as `ExecutableRequest.run_kept`.
        """

    def close(self) -> None:
        """Free the buffers."""


class Part(Protocol):
    """A model that a session compiled for one device: a `CompiledModel`."""

    @property
    def device(self) -> str:
        """The name of the device."""

    @property
    def devices(self) -> tuple[str, ...]:
        """The real devices, that of `FALLBACK` left out."""

    @property
    def outputs(self) -> Mapping[str, TensorType | None]:
        """Output name -> type, as far as it is known."""

    @property
    def optimal_number_of_infer_requests(self) -> int:
        """How many requests at once keep the device busy."""

    def plan(self, shapes: tuple[tuple[int, ...] | None, ...]) -> Any:
        """Compile for these input shapes now, unless that is done; see `CompiledModel.plan`."""

    def create_infer_request(self) -> PartRequest:
        """A new request with buffers of its own."""

    def report(self, shapes: Shapes | None = None) -> Any:
        """The `PlanReport`; see `CompiledModel.report`."""

    @property
    def plans(self) -> Mapping[Any, Any]:
        """The reports of the plans now kept, by input shapes."""

    def plan_subgraphs(self) -> Mapping[str, str]:
        """See `CompiledModel.plan_subgraphs`."""

    def finish_compiling(self) -> None:
        """See `CompiledModel.finish_compiling`."""

    def export_model(self, path: "str | PathLike[str]") -> None:
        """See `CompiledModel.export_model`."""

    def close(self) -> None:
        """Free plans and requests."""


class Session(Protocol):
    """The devices of a `Core`, and compilation for them. Methods may be called from any thread."""

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every real device that can be opened, the best first. Loads all device plugins, and opens no device."""

    def info(self, device: str) -> DeviceInfo:
        """A real device by name or type. Raises what prevents its use."""

    def unusable(self) -> Mapping[str, str]:
        """The device plugins that failed or found no hardware, with the reason. Loads nothing."""

    def targets(self, device: str, properties: Properties) -> tuple[Targets, ...]:
        """The real devices that a name means, that of a virtual device included. See `VirtualDevice.targets`."""

    def first_usable(self, word: str, names: Sequence[str], properties: Properties) -> Targets:
        """The first of these real devices that can be opened and has the properties, and why not those before it.

        Logs a warning that says what `word` passed over. Raises `DeviceUnavailable` or `UnknownOption` when there is none.
        """

    def open(self, device: str, properties: Properties) -> None:
        """Open a real device unless it is open, and check the properties. Raises what prevents its use, `UnknownOption`."""

    def compile(self, model: Model, device: str, properties: Properties) -> Part:
        """Compile for a device, real or virtual, as `Core.compile_model`. The caller closes the result."""


class Composite(ABC):
    """A model compiled by a virtual device. Methods may be called from any thread."""

    @property
    @abstractmethod
    def parts(self) -> Sequence[Part]:
        """The compiled models that may run the next request; the first has the report and the output types."""

    @abstractmethod
    def create_request(self) -> ExecutableRequest:
        """A new request. Its `run` gets values that were checked, for any input shapes that the model allows."""

    @property
    def device(self) -> str:
        """The name to report: by default that of the first part."""
        return self.parts[0].device

    @property
    def optimal_requests(self) -> int:
        """How many requests at once keep all devices busy: by default the sum over the parts."""
        return sum(part.optimal_number_of_infer_requests for part in self.parts)

    def report(self, shapes: Shapes | None = None) -> Any:
        """The `PlanReport`: by default that of the first part."""
        return self.parts[0].report(shapes)

    def finish_compiling(self) -> None:
        """Wait until nothing compiles in the background: by default in the parts."""
        for part in self.parts:
            part.finish_compiling()

    def close(self) -> None:
        """Free everything, once no request runs: by default the parts."""
        for part in self.parts:
            part.close()


class VirtualDevice(ABC):
    """Runs models on other devices. One object serves all sessions; methods may be called from any thread."""

    @abstractmethod
    def targets(self, session: Session, arguments: str, properties: Properties) -> tuple[Targets, ...]:
        """The real devices for `NAME:arguments`: what `query_model` asks. Several targets each run the whole model.

        Raises `UsageError` for arguments or properties that make no sense, `DeviceNotFound`.
        """

    def compile(self, session: Session, model: Model, arguments: str, properties: Properties) -> Composite | None:
        """Compile a model for `NAME:arguments`. None lets the session compile it for the (only) target, which is the default.

        Raises as `targets`, and as `Session.compile`.
        """
        return None
