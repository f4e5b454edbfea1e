"""The session: plugins, opened devices, reading and compiling models."""

import re
import weakref
from collections.abc import Mapping, Sequence
from functools import cache, partial
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dovetail import _log
from dovetail.config import ConfigSource
from dovetail.devices.checked import composite_of, prescribes
from dovetail.devices.contract import Device, DeviceInfo
from dovetail.devices.interruptible import are_calls_left
from dovetail.devices.refusals import Refusal
from dovetail.devices.virtual import Composite, Placement, Targets, VirtualDevice
from dovetail.errors import FormatError, PluginError, UnknownFormat, UsageError
from dovetail.graph.graph import Graph
from dovetail.graph.model import Model, specialised
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.graph.source import FILES_READ, FileRead
from dovetail.html_table import html_table
from dovetail.locks import RLock
from dovetail.names import DEFAULT_DEVICE, printable
from dovetail.operators.operator import Operator
from dovetail.passes.constant_folding import FOLD_BUDGET
from dovetail.passes.pipeline import pipeline
from dovetail.phases import phase
from dovetail.planning.collector import COLLECTOR_PAUSE
from dovetail.planning.dispatch import Dispatch
from dovetail.planning.options import CompileOptions
from dovetail.planning.plan import Target
from dovetail.planning.planner import Planner, Prepared
from dovetail.plugins import PluginManager
from dovetail.plugins.records import HOST, plain_domain
from dovetail.runtime.compiled_model import CompiledModel, Planning, Preparation, finish_elsewhere
from dovetail.runtime.recorded_plans import Recorded, make_plan, restore_plan
from dovetail.runtime.session import DeviceSession, Properties, as_mapping
from dovetail.runtime.sources import content_of

if TYPE_CHECKING:
    from dovetail.planning.support import NodeSupport
    from dovetail.runtime.recipe import Recipe
    from dovetail.runtime.stored_plans import StoredModel, StoredPlan

__all__ = ["Core"]

Virtual = tuple[str, VirtualDevice, str]
"""A virtual device: the name of its plugin, the device, and the arguments behind the colon."""

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
        self._session = DeviceSession(self.plugins, self._compile)
        self._compiled: weakref.WeakSet[CompiledModel] = weakref.WeakSet()
        self._lock = RLock()

    # --- devices ---------------------------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every device that can be opened, the best first. Loads all device plugins. Virtual devices are not among them."""
        return self.plugins.devices()

    @property
    def available_devices(self) -> list[str]:
        """The names of `devices`."""
        return [info.name for info in self.devices]

    def set_property(self, device: str, properties: Properties) -> None:
        """Set properties that later compilations for this device type use, unless they give their own.

        Raises `UsageError` for properties that are not a mapping, `DeviceNotFound` for a type that no installed plugin provides.
        """
        self._session.set_properties(device, properties)

    def reset_device(self, device: str) -> None:
        """Close a real device, for example after `DeviceLost`; the next compilation opens it anew, where its driver allows that.

        Models that were compiled for it have to be compiled again. Raises `DeviceNotFound`, and what the device raises.
        """
        self._session.reset(device)

    # --- models ----------------------------------------------------------------------------------------------------

    def add_extension(self, extension: Any) -> tuple[type[Operator], ...]:
        """Add operators to this session, before all installed packs.

        `extension` is a Python file, a module, an operator class, a `Translation` with `to`, or an iterable of these. Returns the
        classes added.
        """
        from dovetail.runtime.extensions import operators_in  # here, because few sessions have some

        added = operators_in(extension)
        for cls, origin in added:
            self.plugins.add_operator(cls, origin)
        return tuple(cls for cls, _ in added)

    def read_model(self, source: Any, format: str | None = None, **options: Any) -> Model:
        """Read a model: a path; bytes together with `format` (a suffix without dot, such as `onnx`); a file that is open for
        reading bytes; a resource of `importlib.resources`; a protobuf message such as `onnx.ModelProto`.

        Raises `UnknownFormat` when no installed frontend reads it, `FormatError` and `GraphError` for a bad file.
        """
        with COLLECTOR_PAUSE, phase("read the model", "read"):
            return self._read(source, format, options)

    def _read(self, source: Any, format: str | None, options: Properties) -> Model:
        data, suffix = content_of(source, format)
        if suffix:
            files: list[FileRead] = []
            FILES_READ.set(files)
            model = self.plugins.read_model(data, suffix, options)
            if not options and model.format == suffix:
                object.__setattr__(model, "files", tuple(files))
            return model
        if isinstance(data, bytes):
            known = ", ".join(self.plugins.formats()) or "none installed"
            raise UsageError("a model in memory comes without its format", hint=f"read_model(data, format=...): {known}")
        _require_file(data)
        known = ", ".join(f".{f}" for f in self.plugins.formats()) or "none"
        hint = f"rename it, or give format= in Python; installed: {known}"
        raise UnknownFormat(f"{str(data)!r} has no suffix that tells its format", hint=hint)

    def write_model(self, model: Model, target: "str | PathLike[str]", format: str | None = None, **options: Any) -> None:
        """Write a model as the file `target`, in the format of its suffix or in `format`. An existing file is replaced.

        Names, constants and metadata are kept. A format that holds open dimensions and operators by name gets the model as it is,
        any other one the operators of `analyze`. Nothing is written when anything is refused. Raises `UsageError` for inputs with
        open dimensions that the format cannot hold, a folder that does not exist or a target that is not a file, `UnknownFormat`
        when no installed frontend writes the format, `FormatError` naming what it cannot hold or a changed file, `OSError`.
        """
        from dovetail.runtime.writing import write  # here, because few sessions write models

        write(self.plugins, model, Path(fspath(target)), format, options, partial(self._analyzed, budget=_STORED))

    def analyze(self, model: Model, device: str = "", properties: Properties | None = None) -> Graph:
        """The model's graph bound, typed and folded; open dimensions are taken as 1 (use `model.reshape` for others).

        Values with data-dependent shapes have no type. Raises `OperatorError` or a subclass naming the node. With a device,
        operators that no class defines and for which `properties` give it a kernel have the types that the model declares.
        """
        if not device:
            return self._analyzed(model)
        targets = self._session.targets(device, as_mapping(properties))[0]
        return self._analyzed(model, [target.device for target in self._opened(targets, fallback=False)[0]])

    def _analyzed(self, model: Model, devices: Sequence[Device] = (), budget: int = FOLD_BUDGET) -> Graph:
        targets = [Target("", device, {}, "") for device in devices]
        planner = self._planner(targets, CompileOptions(), budget=budget)
        graph, after = planner.analyze(planner.prepare(specialised(model.graph, None)))
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

    def query_support(self, model: Model, device: str, properties: Properties | None = None) -> "dict[str, NodeSupport]":
        """For each node of the model how the device would run it, and whose kernel that is; otherwise like `query_model`.

        `properties` are those that `compile_model` would get.
        """
        answers: dict[str, NodeSupport] = {}
        for targets in self._session.targets(device, as_mapping(properties)):
            for name, found in self._ask(model, targets).items():
                if name not in answers or answers[name].refusal is None:
                    answers[name] = found if found.refusal is not None else answers.get(name, found)
        return answers

    def _ask(self, model: Model, targets: Targets) -> "dict[str, NodeSupport]":
        from dovetail.planning.support import ask  # here, because a session that runs a model does not ask

        opened, options = self._opened(targets, fallback=False)
        return ask(specialised(model.graph, None), self._planner(opened, options, place=_placement(model, targets)))

    def _planner(
        self, targets: Sequence[Target], options: CompileOptions, budget: int = FOLD_BUDGET, place: Placement | None = None
    ) -> Planner:
        passes = pipeline(self.plugins.graph_passes(options.device), options.PASSES)
        return Planner(Dispatch(self.plugins), tuple(targets), options, self.plugins.provider, passes, budget, place)

    def compile_model(
        self, model: "Model | str | PathLike[str]", device: str = DEFAULT_DEVICE, properties: Properties | None = None
    ) -> CompiledModel:
        """Compile a model, or a file, for a device.

        `device` is a name from `available_devices`, its type (`TYPE` means `TYPE.0`), a kind (`CPU`, `GPU`: the best device of
        that kind), or a virtual device with its arguments (`NAME:A,B`), if a plugin provides one. `DEFAULT` is the virtual device
        of that name, and the best of all devices where there is none. Nodes that the chosen devices refuse run on the reference
        device, and the report says why; with `FALLBACK` False that is an error. `properties`: see `CompileOptions`; others go to
        the (first) device. Kinds take a device that has them. `STATE` is the argument of `Model.with_states`.
        """
        given = as_mapping(properties)
        if not isinstance(model, Model):
            stored = self._stored(model, device, given)
            if stored is not None:
                return self._compiled_from(stored, device, given)
            model = self.read_model(model)
        if "STATE" in given:
            model = model.with_states(given.pop("STATE"))
        return self._noted(self._compile(model, device, given))

    def _noted(self, compiled: CompiledModel) -> CompiledModel:
        with self._lock:
            self._compiled.add(compiled)
        return compiled

    def import_model(self, path: "str | PathLike[str]", device: str = "", properties: Properties | None = None) -> CompiledModel:
        """A model compiled from the plans that `CompiledModel.export_model` has written, without its file and without passes.

        By default for the device that it was compiled for. Plans for other shapes, and the nodes of `CompiledModel.model`, are
        made from the model's own file. Nothing is executed. Raises `FormatError` for a damaged file, and for one that was made
        with other versions, plugins, properties or another device, naming it; `UsageError` for plugins that are not installed.
        """
        from dovetail.runtime.stored_plans import read_plans  # here, because few sessions store plans

        given = as_mapping(properties)
        with COLLECTOR_PAUSE:
            needs = lambda made_for: self._needs(device or made_for, given)  # noqa: E731  # shorter than a function in it
            stored = read_plans(Path(fspath(path)), needs, self.plugins, is_trusted=False)
        try:
            return self._compiled_from(stored, device or stored.device, given)
        except (TypeError, ValueError, KeyError, AttributeError, IndexError) as error:  # what checks of types do not see
            raise FormatError(f"the content of {printable(fspath(path))} is malformed: {error!r:.200}") from error

    def _compiled_from(self, stored: "StoredModel", device: str, given: Properties) -> CompiledModel:
        return self._noted(self._compile(stored.model(self.read_model), device, given, stored.plans))

    def _needs(self, device: str, given: Properties) -> Mapping[str, str]:
        from dovetail.runtime.stored_plans import made_for  # as above

        own = self._own_options(device, given)
        return made_for(self.plugins, device, own.device, *self._opened(self._session.targets(device, given)[0]))

    def _interface_needs(self, device: str, given: Properties) -> Mapping[str, str]:
        """As `_needs`, for inputs and outputs of a model on a virtual device, which may open others later."""
        from dovetail.runtime.stored_plans import made_for  # as above

        own = self._own_options(device, given)
        return made_for(self.plugins, device, own.device, (), own)

    def _own_options(self, device: str, given: Properties) -> CompileOptions:
        """The properties of a virtual device; none for a real one, whose properties are those of its target."""
        virtual = self._session.virtual(device)
        return CompileOptions.read({} if virtual is None else self._session.properties_of(virtual[0], given))

    def _stored(self, source: Any, device: str, given: Properties) -> "StoredModel | None":
        """The model and plans that `CACHE_DIR` has of a file; None where it has none."""
        virtual = self._session.virtual(device)
        folder = self._session.properties_of(device if virtual is None else virtual[0], given).get("CACHE_DIR")
        if not folder or not isinstance(folder, str) or not isinstance(source, str | PathLike) or "STATE" in given:
            return None
        from dovetail.runtime.stored_plans import PlanFolder  # as above

        with COLLECTOR_PAUSE:
            needs = self._needs if virtual is None else self._interface_needs
            return PlanFolder(folder, self.plugins).get(needs(device, given), fspath(source), None)

    def _compile(self, model: Model, device: str, given: Properties, stored: "Sequence[StoredPlan]" = ()) -> CompiledModel:
        with COLLECTOR_PAUSE:
            return CompiledModel(model, self.prepare(model, device, given, stored))

    def prepare(self, model: Model, device: str, given: Properties, stored: "Sequence[StoredPlan]" = ()) -> Preparation:
        """As `compile_model`, as far as opening the device and checking the properties; a virtual device compiles its parts.

        What is `stored` is compiled without passes.
        """
        ways = partial(self.prepare, device=device, given=given), partial(self._describe, device, given)
        virtual = self._session.virtual(device)
        if virtual is not None:
            properties = self._session.properties_of(virtual[0], given)
            composite = self._composite(model, device, given, virtual, properties)
            if composite is not None:
                own = {name: value for name, value in properties.items() if name == "TIME_LIMIT"}
                limit = CompileOptions.read(own).TIME_LIMIT
                return Preparation(composite.device, (), *ways, time_limit=limit, composite=composite)
        targets, *others = self._session.targets(device, given)
        if others:
            raise PluginError(f"{device!r} means several targets, and its plugin compiles no model for them")
        opened, options = self._opened(targets)
        name = device if virtual is not None and len(targets.devices) > 1 else opened[0].name
        planner = cache(lambda: self._planner(opened, options, place=_placement(model, targets)))
        trace = None
        if options.TRACE:
            from dovetail.tracing import Trace  # here, because few runs are recorded

            trace = Trace()
        recorded = Recorded(model, targets, options.TIME_LIMIT, trace)
        store = None
        if stored or options.CACHE_DIR:
            from dovetail.runtime.stored_plans import PlanStore  # as above

            later = planner if targets.place else cache(lambda: self._planner(opened, options))  # looks at no model
            compiler = Planner(Dispatch(self.plugins), tuple(opened), options, self.plugins.provider, ())
            restored = partial(restore_plan, compiler, later, recorded)
            store = PlanStore(model, device, self._needs(device, given), self.plugins, options.CACHE_DIR, stored, restored)
        else:
            planner()  # raises for wrong properties
        save = partial(self.plugins.trace_writer(), trace, Path(options.TRACE)) if trace and options.TRACE else None
        streams = targets.requests or opened[0].device.streams

        def planning(of: Model) -> Planning:
            prepared = Prepared(planner, partial(_without_growing_states, of.graph))
            make = partial(make_plan, planner, recorded, prepared, store if of is model else None)
            return Planning(make, prepared.growing(recorded))

        kept, limit, export = options.PLAN_CACHE, options.TIME_LIMIT, partial(self._export, device, given)
        return Preparation(
            name, targets.devices, *ways, planning, kept, limit, streams=streams, trace=trace, save=save, export=export
        )

    def _composite(
        self, model: Model, device: str, given: Properties, virtual: Virtual, properties: Properties
    ) -> Composite | None:
        """The composite that a virtual device makes of the model, unless it only chooses targets."""
        name, found, arguments = virtual
        if (folder := properties.get("CACHE_DIR")) and isinstance(folder, str) and model.files:
            from dovetail.runtime.stored_plans import PlanFolder  # as above

            PlanFolder(folder, self.plugins).keep_interface(self._interface_needs(device, given), model, device)
        return composite_of(name, found, self._session, model, arguments, properties)

    def _export(self, device: str, given: Properties, compiled: CompiledModel, path: Path) -> None:
        from dovetail.runtime.stored_plans import export  # as above

        shapes, needs = tuple(compiled.plans), self._needs(device, given)
        assert compiled.planning is not None  # set by the line above
        export(compiled.model, device, shapes, compiled.planning.make, needs, self.plugins, path)

    def _describe(self, device: str, given: Properties, compiled: CompiledModel) -> "Recipe":
        from dovetail.runtime.recipe import Recipe  # here, because few models are pickled

        properties = self._session.properties_of(compiled.device, given)
        model, devices = compiled.model, [re.split(r"\W", name.strip().lower())[0] for name in (device, *compiled.devices)]
        keys = {model.format, *devices, *map(plain_domain, model.opsets)}
        # Packs are loaded by the first plan.
        records = (r for r in self.plugins.records() if r.state == "loaded" or (r.kind, r.state) == ("ops", "found"))
        used = {r.distribution for r in records if plain_domain(r.key) in keys}
        used |= {node.provider.partition(" ")[0] for report in compiled.plans.values() for node in report.nodes}
        how = {"device": device, "properties": properties, "settings": self._settings, "prepare": _prepare}
        return Recipe.of(model, {HOST, *used}, outputs=dict(compiled.outputs), **how)

    def prescribed_by(self, device: str, domain: str, op_type: str, properties: Properties | None = None) -> str:
        """The (first) device, when under these properties it has a kernel of the user's for operators of this name; else `""`."""
        target = self._opened(self._session.targets(device, as_mapping(properties))[0], fallback=False)[0][0]
        return target.name if prescribes(target.device, domain, op_type) else ""

    def _opened(self, targets: Targets, fallback: bool | None = None) -> tuple[list[Target], CompileOptions]:
        """The devices, and the options for the first; with the reference device as `fallback`, by default as the options say."""
        options = CompileOptions.read(self._session.properties_of(targets.devices[0], targets.properties))
        return self._session.opened(targets, options.FALLBACK if fallback is None else fallback), options

    def close(self) -> None:
        """Close the compiled models, as `CompiledModel.close` does, then every device that was opened.

        What was compiled raises `UsageError` afterwards. In a callback of a run it returns at once, and another thread closes
        the devices when the runs have ended.
        """
        opened = self._session.take_opened()
        with self._lock:
            compiled = list(self._compiled)
        for model in compiled:
            model.mark_closed()

        def free() -> None:
            for model in compiled:
                model.close()
            for _, device in () if are_calls_left() else opened:
                device.close()

        finish_elsewhere(free)

    def __repr__(self) -> str:
        opened = ", ".join(self._session.names_opened())
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


def _placement(model: Model, targets: Targets) -> Placement | None:
    if targets.place is not None:
        return targets.place(model.affinities)
    here = {part for name in targets.devices for part in (name, name.partition(".")[0])}
    if elsewhere := [f"{name} on {device}" for name, device in model.affinities.items() if device.upper() not in here]:
        placed = f"{printable(', '.join(elsewhere[:3]))}{' ...' if len(elsewhere) > 3 else ''}"
        _log.warning("%s: %s places no nodes; affinities left out: %s", printable(model.source), targets.devices[0], placed)
    return None


def _without_growing_states(graph: Graph) -> Graph:
    """The graph whose states of open shapes are plain inputs and outputs, which requests carry on: no device keeps those."""
    return graph.replace(states={name: index for name, index in graph.states.items() if graph.types[name].is_static})


def _require_file(path: Path) -> None:
    """Raise `FormatError` for a path that leads to no file: that matters more than its missing suffix."""
    from dovetail.graph.source import ModelSource  # here, because a session that is given models needs no frontend

    with ModelSource(path).open(limit=2**63):
        return  # it can be opened


def _prepare(recipe: "Recipe") -> tuple[Model, Preparation]:
    recipe.check()
    core = Core(**recipe.settings)
    model = recipe.read(core.read_model)
    return model, core.prepare(model, recipe.device, recipe.properties)
