"""The session: plugins, opened devices, reading and compiling models."""

import logging
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from pathlib import Path
from typing import Any, NoReturn

from dovetail._files import check_target, write_file
from dovetail.config import ConfigSource
from dovetail.devices.contract import Device, DeviceInfo
from dovetail.devices.refusals import Refusal
from dovetail.devices.work_budget import limited
from dovetail.errors import (
    DeviceError,
    DeviceNotFound,
    DeviceUnavailable,
    DovetailError,
    PluginError,
    UnknownFormat,
    UnknownOption,
    UsageError,
)
from dovetail.graph.graph import Graph, Node
from dovetail.graph.model import Model, types_with_inputs
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.graph.types import CONTAINERS, TensorType
from dovetail.html_table import html_table
from dovetail.internal.copy import Copy
from dovetail.names import printable, visible
from dovetail.operators.operator import Operator
from dovetail.passes.constant_folding import FOLD_BUDGET
from dovetail.passes.pipeline import pipeline
from dovetail.planning.dispatch import Dispatch
from dovetail.planning.options import REFERENCE_DEVICE, CompileOptions, meant_for_core
from dovetail.planning.plan import Plan, Target
from dovetail.planning.planner import Planner, Prepared
from dovetail.planning.support import NodeSupport, ask
from dovetail.plugins import PluginManager
from dovetail.runtime.compiled_model import CompiledModel, Preparation, Shapes, finish_elsewhere
from dovetail.runtime.extensions import operators_in
from dovetail.runtime.sources import content_of
from dovetail.tracing import Trace, phase

__all__ = ["Core"]

log = logging.getLogger("dovetail")

Properties = Mapping[str, Any]

_STORED = 2**31
"""Bytes of constants that are computed for a file: about what one file of the formats in use can hold."""


class Core:
    """Finds devices, formats and operators; reads and compiles models. One is enough for a process; it may be shared by threads.

    `plugins` allows or blocks plugins (`"all"`, `"none"`, `"a,b"`, `"-a,-b"`). `prefer` names packs whose overrides are wanted,
    the most preferred first; `{"tim.vx::HSwish": "some-pack"}` pins one operator. `config` is the path of a `dovetail.yaml`, or
    a mapping with its content; None takes the one in the working folder, else the user's, and False none. What is given
    here comes before the environment, and that before the file.

    Raises `UsageError` with file and line for a malformed configuration, `PluginNotFound` for unknown names.
    """

    def __init__(
        self,
        *,
        plugins: str | Sequence[str] | None = None,
        prefer: Sequence[str] | Mapping[str, str] = (),
        config: ConfigSource = None,
    ) -> None:
        self.plugins = PluginManager(plugins=plugins, prefer=prefer, config=config)
        self._settings = {"plugins": plugins, "prefer": prefer, "config": config}
        self._properties = {name: dict(properties) for name, properties in self.plugins.config.devices.items()}
        self._check_configured(lambda name, given: CompileOptions.read(given))
        self._opened: dict[tuple[str, int], tuple[DeviceInfo, Device]] = {}
        self._compiled: weakref.WeakSet[CompiledModel] = weakref.WeakSet()
        self._lock = threading.RLock()

    def _check_configured(self, read: Callable[[str, Properties], object], only: str = "") -> None:
        """Raise the `UsageError` of `read` for one property of the configuration, with its file and line in front."""
        config = self.plugins.config
        for device, given in config.devices.items():
            for name, value in given.items() if only in ("", device) else ():
                try:
                    read(device, {name: value})
                except UsageError as error:
                    raise type(error)(
                        f"{config.place('devices', f'{device} {name}')}: {error.message}", hint=error.hint
                    ) from error

    # --- devices ---------------------------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every device that can be opened, the best for AUTO first. Loads all device plugins."""
        return self.plugins.devices()

    @property
    def available_devices(self) -> list[str]:
        """The names of `devices`."""
        return [info.name for info in self.devices]

    def set_property(self, device: str, properties: Properties) -> None:
        """Set properties that later compilations for this device type use, unless they give their own.

        Raises `UsageError` for properties that are not a mapping, `DeviceNotFound` for a type that no installed plugin provides.
        """
        given, name = _mapping(properties), self.plugins.device_type(device)
        with self._lock:
            self._properties.setdefault(name, {}).update(given)

    # --- models ----------------------------------------------------------------------------------------------------

    def add_extension(self, extension: Any) -> tuple[type[Operator], ...]:
        """Add operators to this session, before all installed packs.

        `extension` is a Python file, a module, an operator class, a `Translation` with `to`, or an iterable of these. Returns the
        classes added.
        """
        added = operators_in(extension)
        for cls, origin in added:
            self.plugins.add_operator(cls, origin)
        return tuple(cls for cls, _ in added)

    def read_model(self, source: Any, format: str | None = None, **options: Any) -> Model:
        """Read a model: a path; bytes together with `format` (a suffix without dot, such as `onnx`); a file that is open for
        reading bytes; a resource of `importlib.resources`; a protobuf message such as `onnx.ModelProto`.

        Raises `UnknownFormat` when no installed frontend reads it, `FormatError` and `GraphError` for a bad file.
        """
        with phase("read the model", "read"):
            return self._read(source, format, options)

    def _read(self, source: Any, format: str | None, options: Properties) -> Model:
        data, suffix = content_of(source, format)
        if suffix:
            return self.plugins.read_model(data, suffix, options)
        if isinstance(data, bytes):
            known = ", ".join(self.plugins.formats()) or "none installed"
            raise UsageError("a model in memory comes without its format", hint=f"read_model(data, format=...): {known}")
        _require_file(data)
        known = ", ".join(f".{f}" for f in self.plugins.formats()) or "none"
        hint = f"rename it, or give format= in Python; installed: {known}"
        raise UnknownFormat(f"{str(data)!r} has no suffix that tells its format", hint=hint)

    def write_model(
        self,
        model: Model,
        target: "str | PathLike[str]",
        format: str | None = None,
        **options: Any,
    ) -> None:
        """Write a model as the file `target`, in the format of its suffix or in `format`. An existing file is replaced.

        Names, constants and metadata are kept. A format that holds open dimensions and operators by name gets the model as it is,
        any other one the operators of `analyze`. Nothing is written when anything is refused. Raises `UsageError` for inputs with
        open dimensions that the format cannot hold, a folder that does not exist or a target that is not a file, `UnknownFormat`
        when no installed frontend writes the format, `FormatError` naming what it cannot hold, `OSError`.
        """
        path = Path(fspath(target))
        check_target(path)
        suffix = format or path.suffix.removeprefix(".").lower()
        if not suffix:
            hint = "add one, or give format=, on the command line --to"
            raise UnknownFormat(f"{str(path)!r} has no suffix that tells its format", hint=hint)
        self.plugins.require_writer(suffix)
        if self.plugins.writes_unbound(suffix):
            write_file(path, self.plugins.write_model(model, suffix, options))
            return
        for name, tensor in model.inputs.items():
            if not tensor.is_static:
                hint = "say all of its shape: model.reshape, on the command line --shape"
                raise UsageError(f"input {name!r} of {model.source} is {tensor}", hint=hint)
        graph = _with_output_names(self._analyzed(model, budget=_STORED), model.graph)
        write_file(path, self.plugins.write_model(replace(model, graph=graph), suffix, options))

    def analyze(self, model: Model, device: str = "", properties: Properties | None = None) -> Graph:
        """The model's graph bound, typed and folded; open dimensions are taken as 1 (use `model.reshape` for others).

        Values with data-dependent shapes have no type. Raises `OperatorError` or a subclass naming the node. With a device,
        operators that no class defines and for which `properties` give it a kernel have the types that the model declares.
        """
        return self._analyzed(model, [target.device for target in self._asked(device, properties)[0]] if device else [])

    def _analyzed(self, model: Model, devices: Sequence[Device] = (), budget: int = FOLD_BUDGET) -> Graph:
        targets = [Target("", device, {}, "") for device in devices]
        planner = self._planner(targets, CompileOptions(), budget=budget)
        graph, after = planner.analyze(planner.prepare(_specialised(model.graph, None)))
        if after is None:
            return graph
        nodes = (*graph.nodes, *after.ready, *after.rest.nodes)
        constants = {**after.constants, **graph.constants}
        return drop_dead_nodes(graph.replace(nodes=nodes, outputs=after.rest.outputs, constants=constants))

    def query_model(self, model: Model, device: str) -> dict[str, str | Refusal]:
        """For each node of the model the device that would run it, or why the (last) device asked does not.

        The answer for a node that is expanded or merged is that for its replacement: a refusal as soon as one part is refused.
        Nodes that are computed while planning are left out.
        """
        answers = self.query_support(model, device)
        return {name: found.device if found.refusal is None else found.refusal for name, found in answers.items()}

    def query_support(self, model: Model, device: str, properties: Properties | None = None) -> dict[str, NodeSupport]:
        """For each node of the model how the device would run it, and whose kernel that is; otherwise like `query_model`.

        `properties` are those that `compile_model` would get.
        """
        targets, options = self._asked(device, properties)
        return ask(_specialised(model.graph, None), self._planner(targets, options))

    def _planner(self, targets: Sequence[Target], options: CompileOptions, budget: int = FOLD_BUDGET) -> Planner:
        passes = pipeline(self.plugins.graph_passes(options.device), options.PASSES)
        return Planner(Dispatch(self.plugins), tuple(targets), options, self.plugins.provider, passes, budget)

    def compile_model(
        self, model: "Model | str | PathLike[str]", device: str = "AUTO", properties: Properties | None = None
    ) -> CompiledModel:
        """Compile a model, or a file, for a device.

        `device` is a name from `available_devices`, its type (`TYPE` means `TYPE.0`), a kind (`CPU`, `GPU`: the best device of
        that kind), `AUTO` (the best of all), or `HETERO:A,B` (each node on the first that takes it). Nodes that the chosen
        devices refuse run on the reference device, and the report says why; with `FALLBACK` False that is an error.
        `properties`: see `CompileOptions`; others go to the (first) device. `AUTO` and kinds take a device that has them.
        """
        if not isinstance(model, Model):
            model = self.read_model(model)
        given = _mapping(properties)
        prepared = self.prepare(model, device, given)
        compiled = CompiledModel(model, prepared, (_prepare, model, device, given, self._settings))
        with self._lock:
            self._compiled.add(compiled)
        return compiled

    def prepare(self, model: Model, device: str, given: Properties) -> Preparation:
        """As `compile_model`, as far as opening the device and checking the properties."""
        names, passed_over = self._resolve(device, CompileOptions.read(given).device)
        options = CompileOptions.read({**self._set_for(names[0]), **given})
        targets = self._targets(names, options.device, options.FALLBACK)
        name = targets[0].name if ":" not in device else device
        planner = self._planner(targets, options)
        limit = options.TIME_LIMIT
        trace = Trace() if options.TRACE else None

        save = partial(self.plugins.trace_writer(), trace, Path(options.TRACE)) if trace and options.TRACE else None

        def prepared(model: Model) -> Preparation:
            graph = Prepared(planner, model.graph)

            def plan(shapes: Shapes) -> Plan:
                with limited(limit), trace.recording() if trace else nullcontext():
                    made = planner.plan(_specialised(graph.graph, shapes), graph.reports)
                _log_fallbacks(model, made, targets[0].name)
                return replace(made, report=replace(made.report, passed_over=passed_over)) if passed_over else made

            return Preparation(name, plan, options.PLAN_CACHE, limit, prepared, trace, save)

        return prepared(model)

    def prescribed_by(self, device: str, domain: str, op_type: str, properties: Properties | None = None) -> str:
        """The (first) device, when under these properties it has a kernel of the user's for operators of this name; else `""`."""
        target = self._asked(device, properties)[0][0]
        return target.name if target.device.prescribes(domain, op_type) else ""

    def _asked(self, device: str, properties: Properties | None) -> tuple[list[Target], CompileOptions]:
        """Devices that are only asked, without one to fall back to."""
        given = _mapping(properties)
        names, _ = self._resolve(device, CompileOptions.read(given).device)
        options = CompileOptions.read({**self._set_for(names[0]), **given})
        return self._targets(names, options.device, fallback=False), options

    # --- choosing devices ------------------------------------------------------------------------------------------

    def _set_for(self, device: str) -> Properties:
        """The properties from the configuration and `set_property` for the type of a device."""
        with self._lock:
            return dict(self._properties.get(device.split(".")[0], {}))

    def _targets(self, names: Sequence[str], options: Properties, fallback: bool) -> list[Target]:
        """`options` are those of the first device."""
        chosen = set(names[:1])
        targets = []
        for name in [*names, *([REFERENCE_DEVICE] if fallback and REFERENCE_DEVICE not in names else [])]:
            own = options if name in chosen else CompileOptions.read(self._set_for(name)).device
            try:
                targets.append(self._target(name, own))
            except (DeviceError, PluginError) as error:
                # Here the reference device only takes what others refuse: without it a refusal becomes an error of its own.
                if name != REFERENCE_DEVICE or name in chosen:
                    raise
                log.info("%s is missing for nodes that %s refuses: %s", name, names[0], error)
        return targets

    def _target(self, name: str, options: Properties) -> Target:
        info = self.plugins.device_info(name)
        with self._lock:
            # Another plugin may serve the name by now (`plugins.register`); compiled models keep the device that they have.
            key = info.name, id(info)
            if key not in self._opened:
                self._opened[key] = info, self.plugins.open_device(info.name, {})
            opened = self._opened[key][1]
        try:
            configured = opened.configured(options)
        except UsageError as error:
            self._check_configured(lambda _, given: opened.configured(CompileOptions.read(given).device), only=info.type)
            if (meant := meant_for_core(options)) is not None:
                raise type(error)(error.message, hint=f"{error.hint}; a property of every device: {meant}") from error
            raise
        return Target(info.name, configured, options, self._provider(info))

    def _provider(self, info: DeviceInfo) -> str:
        key = info.type.lower()
        loaded = (r for r in self.plugins.records() if (r.kind, r.key.lower(), r.state) == ("devices", key, "loaded"))
        return next(loaded).provider

    def _resolve(self, device: str, options: Properties) -> tuple[list[str], Mapping[str, str]]:
        """The devices meant, and for a kind or AUTO those that were passed over, with the reason."""
        if not isinstance(device, str):
            raise UsageError(f"a device cannot be a {type(device).__name__}", hint="accepted: a name, such as 'AUTO'")
        head, _, tail = device.strip().partition(":")
        word = head.upper()
        if word == "HETERO":
            names = [self.plugins.device_info(part.strip()).name for part in tail.split(",") if part.strip()]
            if not names:
                raise UsageError(f"{device!r} lists no devices", hint="write HETERO:A,B")
            return list(dict.fromkeys(names)), {}
        if tail:
            raise UsageError(f"unknown virtual device {head!r}", hint="known: AUTO, HETERO:A,B")
        if word in ("AUTO", "CPU", "GPU", "NPU"):
            return self._best(word, options)
        return [self.plugins.device_info(device).name], {}

    def _best(self, word: str, options: Properties) -> tuple[list[str], Mapping[str, str]]:
        fitting = [info for info in self.devices if word in ("AUTO", info.kind)]
        if not fitting:
            found = ", ".join(f"{i.name} ({i.kind})" for i in self.devices) or "none"
            raise DeviceNotFound(f"no {'device' if word == 'AUTO' else word + ' device'} is available; found: {found}")
        for record in self.plugins.records():
            if word == "AUTO" and record.kind == "devices" and record.state in ("failed", "unavailable"):
                log.warning("AUTO takes %s: %s is %s (%s)", fitting[0].name, record.id, record.state, record.reason)
        name, passed_over = self._first_that_opens(word, fitting, options)
        for skipped, reason in passed_over.items():
            log.warning("%s takes %s, not %s: %s", word, name, skipped, reason)
        return [name], passed_over

    def _first_that_opens(self, word: str, fitting: Sequence[DeviceInfo], options: Properties) -> tuple[str, Mapping[str, str]]:
        """The first device that can be opened and has these properties of devices, and why not those before it."""
        errors: dict[str, DovetailError] = {}
        for info in fitting:
            try:
                self._target(info.name, CompileOptions.read({**self._set_for(info.name), **options}).device)
            except (DeviceError, PluginError, UnknownOption) as error:
                if isinstance(error, UnknownOption) and not options:
                    raise  # of the configuration for this very device
                errors[info.name] = error
                continue
            return info.name, {name: error.message for name, error in errors.items()}
        if len(errors) == 1:
            raise next(iter(errors.values()))
        reasons = "; ".join(f"{error.message} ({error.hint})" if error.hint else error.message for error in errors.values())
        kind = "" if word == "AUTO" else f"{word} "
        if all(isinstance(error, UnknownOption) for error in errors.values()):
            raise UnknownOption(f"no {kind}device has all of these properties: {reasons}")
        raise DeviceUnavailable(f"no {kind}device can be used: {reasons}")

    def close(self) -> None:
        """Close the compiled models, as `CompiledModel.close` does, then every device that was opened.

        What was compiled raises `UsageError` afterwards. In a callback of a run it returns at once, and another thread closes
        the devices when the runs have ended.
        """
        with self._lock:
            opened, self._opened = list(self._opened.values()), {}
            compiled = list(self._compiled)
        for model in compiled:
            model.mark_closed()

        def free() -> None:
            for model in compiled:
                model.close()
            for _, device in opened:
                device.close()

        finish_elsewhere(free)

    def __repr__(self) -> str:
        with self._lock:
            opened = ", ".join(info.name for info, _ in self._opened.values())
        return f"<Core: {len(self.plugins.records())} plugins, devices opened: {opened or 'none'}>"

    def _repr_html_(self) -> str:
        rows = ((info.name, info.kind, info.full_name) for info in self.devices)
        return html_table(repr(self)[1:-1], ("device", "kind", "name"), rows)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a Core does not pickle: it holds opened devices. Make one in each process, or pickle the CompiledModel, which the "
            "other process compiles for its own devices"
        )

    def __enter__(self) -> "Core":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _mapping(properties: Properties | None) -> dict[str, Any]:
    if properties is not None and not isinstance(properties, Mapping):
        raise UsageError(f"properties are {properties!r:.60}; accepted: a mapping such as {{'FUSION': False}}")
    return dict(properties or {})


def _specialised(graph: Graph, shapes: Shapes | None) -> Graph:
    """The graph with static input types; open dimensions become 1 when no shapes are given."""
    given = {}
    for index, name in enumerate(graph.inputs):
        declared = graph.types[name]
        shape = None if shapes is None else shapes[index]
        if shape is not None:
            given[name] = TensorType(declared.dtype, shape)
        elif not declared.is_static and not isinstance(declared, CONTAINERS):
            given[name] = declared.with_shape(tuple(d if isinstance(d, int) else 1 for d in declared.shape or ()))
    return graph.replace(types=types_with_inputs(graph, given))


def _with_output_names(graph: Graph, original: Graph) -> Graph:
    """`graph` with the outputs called as in `original`: nodes that only hand their input on were left out."""
    pairs = [(now, name) for now, name in zip(graph.outputs, original.outputs, strict=True) if now != name]
    nodes = [Node(original.producers[name].name, Copy(), (now,), (name,)) for now, name in pairs]
    types = {name: graph.types[now] for now, name in pairs if now in graph.types}
    return graph.replace(nodes=(*graph.nodes, *nodes), outputs=original.outputs, types={**graph.types, **types})


def _log_fallbacks(model: Model, plan: Plan, chosen: str) -> None:
    moved = [n for n in plan.report.nodes if n.device != chosen and n.refusals]
    for node in moved:
        device, refusal = node.refusals[0]
        known = [printable(text) for text in (model.source, node.name, node.op)]
        log.warning("%s: node %s (%s) runs on %s; %s: %s", *known, node.device, device, visible(str(refusal)))


def _require_file(path: Path) -> None:
    """Raise `FormatError` for a path that leads to no file: that matters more than its missing suffix."""
    from dovetail.graph.source import ModelSource  # here, because a session that is given models needs no frontend

    with ModelSource(path).open(limit=2**63):
        return  # it can be opened


def _prepare(model: Model, device: str, properties: Properties, settings: Mapping[str, Any]) -> Preparation:
    return Core(**settings).prepare(model, device, properties)
