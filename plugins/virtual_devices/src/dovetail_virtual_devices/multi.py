"""MULTI: each request on whichever of several devices is free."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from dovetail.cpus import usable_cpus
from dovetail.errors import UnknownOption, UsageError
from dovetail.hookspecs import hookimpl
from dovetail.virtual import Composite, ExecutableRequest, Model, Part, Session, Targets, VirtualDevice
from dovetail_virtual_devices.failures import is_of_the_caller, named
from dovetail_virtual_devices.lanes import Lane, Lanes, Scheduler
from dovetail_virtual_devices.names import listed, properties_of
from dovetail_virtual_devices.options import MultiOptions

__all__ = ["Multi", "dovetail_api", "dovetail_virtual_device"]

dovetail_api = "1.0"

log = logging.getLogger("dovetail")


class Multi(VirtualDevice):
    """`MULTI:A,B`: requests run on all devices at once, each as a whole on one of them."""

    def targets(self, session: Session, arguments: str, properties: Mapping[str, Any]) -> tuple[Targets, ...]:
        """One for each device: each must run the whole model. Raises `UsageError` for unequal devices with REPRODUCIBLE."""
        options, rest = MultiOptions.split(properties)
        names = listed(session, "MULTI", arguments)
        if options.REPRODUCIBLE:
            _require_equal(session, names)
        return tuple(Targets((name,), _for_one(session, name, names, options, rest)) for name in names)

    def compile(self, session: Session, model: Model, arguments: str, properties: Mapping[str, Any]) -> Composite:
        """Compile for every device. Those that fail are passed over, unless all do."""
        options, _ = MultiOptions.split(properties)
        parts: list[Part] = []
        failed: dict[str, BaseException] = {}
        for target in self.targets(session, arguments, properties):
            name = target.devices[0]
            try:
                parts.append(session.compile(model, name, target.properties))
            except BaseException as error:
                if is_of_the_caller(error) or options.REPRODUCIBLE or target.properties.get("FALLBACK") is False:
                    for part in parts:
                        part.close()
                    raise
                log.warning("MULTI passes over %s: %s", name, error)
                failed[name] = error
        if not parts:
            raise next(iter(failed.values()))
        return MultiModel(parts, options, {name: str(error) for name, error in failed.items()})


def _require_equal(session: Session, names: Sequence[str]) -> None:
    infos = [session.info(name) for name in names]
    if len({(info.type, info.full_name, repr(sorted(info.details.items()))) for info in infos}) > 1:
        raise UsageError(
            f"REPRODUCIBLE asks for bitwise equal results, and {', '.join(f'{i.name} ({i.full_name})' for i in infos)} differ",
            hint="list equal devices, or one of them",
        )


def _for_one(session: Session, name: str, names: Sequence[str], options: MultiOptions, rest: Mapping[str, Any]) -> dict[str, Any]:
    """The properties for one of the devices. CPU devices leave a core to each of the others, and share the rest."""
    given = properties_of(session, name, {"PERFORMANCE_HINT": "THROUGHPUT", **rest}, options.DEVICE_PROPERTIES)
    on_cpu = [other for other in names if session.info(other).kind == "CPU"]
    if name not in on_cpu or len(names) == 1 or "INFERENCE_NUM_THREADS" in given:
        return given
    threads = max(1, (usable_cpus() - (len(names) - len(on_cpu))) // len(on_cpu))
    try:
        session.open(name, {**given, "INFERENCE_NUM_THREADS": threads})
    except UnknownOption:
        return given  # its threads are those of its driver
    return {**given, "INFERENCE_NUM_THREADS": threads}


class MultiModel(Composite):
    """A model on several devices. A device that fails is used no longer, while another one is left."""

    def __init__(self, parts: Sequence[Part], options: MultiOptions, passed_over: Mapping[str, str]) -> None:
        self.options = options
        self._passed_over = dict(passed_over)
        self.scheduler = Scheduler(
            [Lanes(part, part.optimal_number_of_infer_requests) for part in parts], options.SCHEDULE_POLICY == "ROUND_ROBIN"
        )

    @property
    def parts(self) -> Sequence[Part]:
        """The compiled models whose devices have not failed."""
        return [lanes.part for lanes in self.scheduler.parts if not lanes.failed]

    @property
    def device(self) -> str:
        """`MULTI:` and the devices in use."""
        return f"MULTI:{','.join(part.device for part in self.parts)}"

    def create_request(self) -> "MultiRequest":
        """A new request, which has no device until it runs."""
        return MultiRequest(self)

    def report(self, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
        """The report of the first device in use; its notes have the requests that each device ran."""
        found = self.parts[0].report(shapes)
        failed = {lanes.part.device: lanes.failed for lanes in self.scheduler.parts if lanes.failed}
        notes = [f"{lanes.part.device}: {lanes.runs} requests, {lanes.count} at a time" for lanes in self.scheduler.parts]
        return replace(found, passed_over={**self._passed_over, **failed}, notes=(*notes, *found.notes))

    def close(self) -> None:
        """Free all parts, those of devices that failed too."""
        self.scheduler.close()


class MultiRequest(ExecutableRequest):
    """A request that runs on the device that is free."""

    fresh = True

    def __init__(self, model: MultiModel) -> None:
        self._model = model

    def run(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run on the first free device. Raises the error of the first device when no other one does better."""
        scheduler = self._model.scheduler
        tried: list[Lanes] = []
        first: BaseException | None = None
        while (lane := scheduler.take(lambda lanes: lanes not in tried)) is not None:
            try:
                results = lane.run(inputs)
            except BaseException as error:
                lane.close()
                if is_of_the_caller(error):
                    raise
                tried.append(lane.lanes)
                first = first or named(error, lane.lanes.part.device)
            else:
                for lanes in tried:
                    self._drop(lanes, lane, first)
                return results
            finally:
                scheduler.give_back(lane)
            if self._model.options.REPRODUCIBLE or not self._model.options.ENABLE_RUNTIME_FALLBACK:
                break
        assert first is not None
        raise first

    def _drop(self, lanes: Lanes, lane: Lane, error: BaseException | None) -> None:
        if self._model.scheduler.fail(lanes, str(getattr(error, "message", error))):
            device = lane.lanes.part.device
            log.warning("MULTI uses %s no longer, and ran the request on %s: %s", lanes.part.device, device, error)


@hookimpl
def dovetail_virtual_device() -> VirtualDevice:
    return Multi()
