"""Plans in files, for processes that start fast: what a file was made for, and the models and plans in it."""

import os
import sys
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail import _log
from dovetail._files import written_whole
from dovetail._version import __version__
from dovetail.cache import FileCache
from dovetail.dataclass import dataclass
from dovetail.devices.refusals import Refusal
from dovetail.errors import DeviceError, DovetailError, FormatError, OperatorError, UsageError, raised_by_handler
from dovetail.evaluate.inference import infer_node
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.growth import Growth
from dovetail.graph.layout import PLAIN, Layout
from dovetail.graph.mapped_file import MappedFile, place_in_file
from dovetail.graph.model import Model
from dovetail.graph.types import TensorType
from dovetail.graph.validate import validate
from dovetail.names import printable
from dovetail.passes.defer import Continuation
from dovetail.passes.graph_pass import Notes, Planned
from dovetail.planning.options import CompileOptions
from dovetail.planning.plan import Plan, Shapes, Target
from dovetail.plugins.records import HOST
from dovetail.runtime.file_states import FileState, is_as_read, status_of, times_of

if TYPE_CHECKING:
    from dovetail.plugins import PluginManager

__all__ = ["PlanFolder", "PlanStore", "StoredModel", "StoredPlan", "export", "made_for", "read_plans"]

_HINT = "export it again: compiled.export_model(path), or dovetail compile"

_unchanged: dict[str, Any] = {}
"""The modules of the file that was read last: mostly they are those of the next one."""


@dataclass(frozen=True)
class StoredPlan:
    """The input of compilation for some input shapes, and the entries that its report has besides."""

    shapes: Shapes
    planned: Planned
    rules: Mapping[str, int]
    stops: Mapping[str, tuple[str, Refusal]]
    deferred: Continuation | None

    @staticmethod
    def of(shapes: Shapes, planned: Planned, notes: Notes) -> "StoredPlan":
        """Without what no executable is made from."""
        whole = planned.whole
        types = {name: whole.types[name] for name in (*whole.inputs, *whole.outputs)}
        constants = {name: whole.constants[name] for name in whole.outputs if name in whole.constants}
        whole = whole.replace(nodes=(), types=types, constants=constants)
        stub = Planned(whole, planned.parts, planned.placed, whole)
        return StoredPlan(shapes, stub, dict(notes.rules), dict(notes.stops), notes.deferred)

    @property
    def notes(self) -> Notes:
        """The entries of the report."""
        return Notes(rules=dict(self.rules), stops=dict(self.stops), deferred=self.deferred)


@dataclass(frozen=True)
class StoredModel:
    """A model without its nodes, as programs see it, and some of its plans."""

    graph: Graph
    opsets: Mapping[str, int]
    source: str
    format: str
    metadata: Mapping[str, str]
    overridable: Mapping[str, TensorType]
    growth: Growth | None
    files: tuple[FileState, ...]
    device: str
    plans: tuple[StoredPlan, ...] = ()

    @staticmethod
    def of(model: Model, device: str, plans: Sequence[StoredPlan] = ()) -> "StoredModel":
        """Raises `UsageError` for a model that was made or changed in memory."""
        if not model.files:
            hint = "read the file without options and compile it as it is; shapes may stay open"
            raise UsageError(f"{model.source} was made or changed in memory: its plans belong to no file", hint=hint)
        graph = model.graph
        types = {name: graph.types[name] for name in (*graph.inputs, *graph.outputs) if name in graph.types}
        stub = Graph((), graph.inputs, graph.outputs, {}, types, graph.name, dict(graph.states))
        files = tuple([FileState.of(path, read) for path, read in model.files])
        given = model.opsets, model.source, model.format, model.metadata, model.overridable, model.growth
        return StoredModel(stub, *given, files, device, tuple(plans))

    def model(self, read: Callable[[Path, str], Model]) -> Model:
        """The model; `read(path, format)` reads its nodes and constants when they are asked for."""
        graph = object.__new__(_UnreadGraph)
        vars(graph).update({name: getattr(self.graph, name) for name in ("inputs", "outputs", "types", "name", "states")})
        vars(graph)["_read"] = lambda: self._checked(read).graph
        found = Model(graph, self.opsets, self.source, self.format, self.metadata, self.overridable, self.growth)
        object.__setattr__(found, "files", tuple([(one.path, status_of(one.path)) for one in self.files]))
        return found

    def _checked(self, read: Callable[[Path, str], Model]) -> Model:
        _require_current(self.files)
        return read(Path(self.files[0].path), self.format)


def _require_current(files: Sequence[FileState], now: os.stat_result | None = None) -> None:
    if changed := [one.path for one in files if not one.is_current(now)]:
        reason = f"the file '{printable(changed[0])}' changed, or is gone, since plans of it were written"
        raise FormatError(reason, hint="bring it back, or compile the model again")


class _UnreadGraph(Graph):
    """The graph of a stored model: inputs and outputs, and what is read from the model's file when it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name not in ("nodes", "constants") or "_read" not in vars(self):
            raise AttributeError(name)
        graph = vars(self)["_read"]()
        vars(self).update({one: getattr(graph, one) for one in ("nodes", "constants", "types")})
        return vars(self)[name]


def made_for(
    plugins: "PluginManager", device: str, properties: Mapping[str, Any], targets: Iterable[Target], options: CompileOptions
) -> dict[str, str]:
    """Everything else than the model and the code of plugins that plans depend on, by names that a message can use.

    `properties` are those of a virtual device, some of which its targets do not have. Without targets for a model without plans.
    """
    records = plugins.records()
    chosen = plugins.preferences
    found = {"Python": f"{sys.implementation.name} {sys.version}", "NumPy": np.__version__, HOST: __version__}
    for one in records:
        state = f" ({one.state})" if one.state in ("blocked", "opt-in", "incompatible") else ""
        found[f"plugin {one.id}"] = f"{one.version}{state}"
    for target in targets:
        info = target.device.info
        found[f"device {target.name}"] = info.full_name
        found |= {f"{target.name} {name}": str(value) for name, value in info.details.items() if name != "memory_bytes"}
        found[f"{target.name} streams"] = str(target.device.streams)
        found |= {f"{target.name} property {name}": text for name, text in _with_contents(target.options)}
    found |= {"preferences": repr((chosen.names, chosen.pins)), "device": device}
    found |= {f"property {name}": repr(getattr(options, name)) for name in ("FUSION", "FALLBACK", "PASSES")}
    found |= {f"property {name}": text for name, text in _with_contents(properties)}
    caches = ("DOVETAIL_CACHE_DIR", "DOVETAIL_CACHE_LIMIT")
    names = sorted(name for name in os.environ if name.startswith("DOVETAIL_") and name not in caches)
    variables = {name: [_with_content(one) for one in os.environ[name].split(os.pathsep)] for name in names}
    return {**found, "environment": repr(variables)}


def _with_contents(properties: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    return [(name, repr(_with_content(value))) for name, value in sorted(properties.items()) if name != "CACHE_DIR"]


def _with_content(value: object) -> object:
    """The value of a property, with the states of the files that it names, if it does."""
    if isinstance(value, list | tuple):
        return [_with_content(one) for one in value]
    path = os.fspath(value) if isinstance(value, str | os.PathLike) else ""
    return (path, _state(path)) if os.path.isfile(path) else value


def _state(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def _packages(plugins: "PluginManager") -> set[str]:
    """The top-level packages of dovetail and of installed plugins. Raises `UsageError` naming plugins that are not installed."""
    if temporary := plugins.in_process:
        hint = "install them as packages, or compile the model in each process"
        raise UsageError(f"plans depend on plugins of this process: {', '.join(temporary)}", hint=hint)
    return {HOST, *(record.value.partition(":")[0].partition(".")[0] for record in plugins.records())}


def _loaded(packages: set[str]) -> dict[str, list[tuple[str, int, int]]]:
    """The modules of packages that are imported: for each package the paths below it, with bytes and seconds."""
    found: dict[str, list[tuple[str, int, int]]] = {name: [] for name in packages if name in sys.modules}
    for name, module in sorted(sys.modules.items()):
        top, path = name.partition(".")[0], getattr(module, "__file__", None)
        if top in found and path and (folder := _folder(top)):
            found[top].append((os.path.relpath(path, folder), *(_state_of_module(path) or (0, 0))))
    return found


def _state_of_module(path: str) -> tuple[int, int] | None:
    """Bytes and seconds of a module's file; of the archive or the frozen program that has the module, where it is not a file."""
    found = _state(path)
    if found is None:
        holder = next(folder for folder in Path(path).absolute().parents if folder.exists())
        found = _state(str(holder) if holder.is_file() else sys.executable)
    return found and (found[0], found[1] // 10**9)


def _folder(package: str) -> str:
    """Where a package is, or would be imported from."""
    if package in sys.modules:
        return str(next(iter(sys.modules[package].__path__)))
    for entry in sys.path:  # as Python finds most packages, in a fraction of the time
        if os.path.exists(os.path.join(entry, package, "__init__.py")):
            return os.path.join(entry, package)
        if os.path.isfile(entry):  # an archive, which may have it
            break
    from importlib.util import find_spec  # here, because few packages are found otherwise

    found = find_spec(package)
    return str(next(iter(found.submodule_search_locations or [""]))) if found else ""


def _changed(modules: Mapping[str, Sequence[Sequence[Any]]]) -> str:
    """The first module that is not as it was; `""` where all are."""
    for package, files in modules.items():
        folder = _folder(package)
        for path, size, seconds in files:
            if _state_of_module(f"{folder}/{path}") != (size, seconds):
                return f"{package}/{path}"
    return ""


def _write_plans(
    stored: StoredModel, needs: Mapping[str, str], plugins: "PluginManager", files: Sequence[FileState] = ()
) -> Iterable[bytes | memoryview]:
    """The bytes of a file, in pieces. Weights that are in `files` as they are, are only referred to.

    Raises `UsageError` for what cannot be written, naming plugin or node.
    """
    from dovetail.planning.plan_format import packed  # here, because few sessions store plans

    packages = _packages(plugins)
    numbers = {(os.path.realpath(one.path), one.times): number for number, one in enumerate(files, 1)}

    def elsewhere(array: NDArray[Any]) -> tuple[int, int] | None:
        place = place_in_file(array) if numbers else None
        number = None if place is None else numbers.get((str(place[0].path), times_of(place[0].status)))
        return None if place is None or number is None else (number, place[1])

    circumstances = {
        "needs": needs,
        "modules": _loaded(packages),
        "files": [(one.path, *one.times, one.checksum) for one in files],
    }
    return packed(circumstances, stored, packages, elsewhere)


def read_plans(
    path: Path, needs: Callable[[str], Mapping[str, str]], plugins: "PluginManager", *, is_trusted: bool
) -> StoredModel:
    """The content of a file that `_write_plans` has written. `needs` gives what there is now for a device.

    Unless it `is_trusted`, each type is compared with what its node infers, because kernels trust types, and no other file is
    read.

    Raises `FormatError` for another file, one that is damaged, or was made for something else, and says what differs.
    """
    from dovetail.planning.plan_format import Damaged, header_of, unpacked  # as above

    shown = printable(str(path))
    try:
        content, region, _ = _opened(path)
        header, start = header_of(content)
        then, modules = header["made_for"]["needs"], header["made_for"]["modules"]
        now = dict(needs(str(then["device"])))
        different = [name for name in {**then, **now} if then.get(name) != now.get(name)]
        if different:
            name = different[0]
            more = f" (and {len(different) - 1} more)" if len(different) > 1 else ""
            reason = f"it was made for {name} {printable(str(then.get(name)))}, here is {printable(str(now.get(name)))}{more}"
            raise FormatError(f"{shown}: {reason}", hint=_HINT)
        if modules != _unchanged and (changed := _changed(modules)):
            raise FormatError(f"{shown}: the module {printable(changed)} is not the one that made it", hint=_HINT)
        _unchanged.update(modules)
        files = [FileState(*one) for one in header["made_for"]["files"]] if is_trusted else []
        found = unpacked(header, [region, *map(_region, files)], start, _packages(plugins), is_trusted=is_trusted)
        if not isinstance(found, StoredModel) or not found.files:
            raise Damaged("it has no model")
        for plan in () if is_trusted else found.plans:
            _check(found, plan)
    except (FormatError, UsageError, DeviceError, MemoryError):
        raise
    except Exception as error:  # operators that a file describes wrongly raise what they like
        if raised_by_handler(error):
            raise
        if isinstance(error, OSError):
            raise FormatError(f"{shown} cannot be read: {error.strerror or error}") from None
        raise FormatError(f"{shown} is not a file of plans: {error}", hint=_HINT) from error
    return found


def _region(file: FileState) -> Callable[[int, int], NDArray[np.uint8]]:
    _, region, status = _opened(Path(file.path))
    _require_current([file], status)
    return region


def _opened(path: Path) -> tuple[NDArray[np.uint8], Callable[[int, int], NDArray[np.uint8]], os.stat_result]:
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not os.path.isfile(path):
            raise FormatError(f"{printable(str(path))} is not a file", hint="accepted: a file that export_model has written")
        mapped = MappedFile.of(path, descriptor)
        if mapped is not None:
            return mapped.content, mapped.region, mapped.status
        status, content = os.fstat(descriptor), np.frombuffer(file.read(), np.uint8)
    return content, lambda start, length: content[start : start + length], status


def _check(stored: StoredModel, plan: StoredPlan) -> None:
    """Raise `DovetailError` or `Damaged` for a plan that does not fit together: kernels trust types, of inputs too."""
    from dovetail.planning.plan_format import Damaged  # as above

    whole, known = plan.planned.whole, dict[str, TensorType]()
    outputs = len(whole.outputs if plan.deferred is None else stored.graph.outputs)  # what follows has those of the model
    if (whole.inputs, outputs) != (stored.graph.inputs, len(stored.graph.outputs)):
        raise Damaged("a plan has other inputs or outputs than the model")
    for name, shape in zip(stored.graph.inputs, plan.shapes, strict=True):
        known[name] = TensorType(stored.graph.types[name].dtype, shape)
    for part in plan.planned.parts:
        graph = part.graph
        validate(graph)
        for name in graph.inputs:
            _require(known[name], graph.types[name], name)
        for name, array in graph.constants.items():  # devices bring them into their layouts
            _require(TensorType.of(array), graph.types[name], name, graph.types[name].layout)
        for node in graph.nodes:
            for name, tensor in zip(node.writes, _inferred(node, graph), strict=True):
                written = graph.types[name]
                # A precision hint makes results narrower: kernels are chosen by the types that are written.
                is_float = tensor.dtype.is_float and written.dtype.is_float
                _require(tensor.with_dtype(written.dtype) if is_float else tensor, written, name, written.layout)
        known |= {name: graph.types[inner] for name, inner in zip(part.outputs, graph.outputs, strict=True)}
    for name in whole.outputs:
        _require(TensorType.of(whole.constants[name]) if name in whole.constants else known[name], whole.types[name], name)


def _inferred(node: Node, graph: Graph) -> Sequence[TensorType]:
    """The types of what a node writes; of one that reads float32 beside half precision, by a hint, as if all were float32."""
    inputs = [graph.type_of(one) for one in node.inputs]
    try:
        return infer_node(node, inputs)
    except OperatorError:
        halves = (DType.FLOAT16, DType.BFLOAT16)
        return infer_node(node, [t.with_dtype(DType.FLOAT32) if t is not None and t.dtype in halves else t for t in inputs])


def _require(found: TensorType, written: TensorType, name: str, layout: Layout = PLAIN) -> None:
    from dovetail.planning.plan_format import Damaged  # as above

    if (found.dtype, found.shape, layout) != (written.dtype, written.shape, written.layout):
        raise Damaged(f"the type of value '{printable(name)}' is {found}, not {written}")


def export(
    model: Model,
    device: str,
    shapes: Sequence[Shapes],
    make: Callable[..., Plan],
    needs: Mapping[str, str],
    plugins: "PluginManager",
    path: Path,
) -> None:
    """Write plans of a model for these shapes; see `CompiledModel.export_model`."""
    if not shapes:
        raise UsageError(f"{model.source} has open dimensions and no plan yet", hint="run it once, or give its shapes")
    kept: list[StoredPlan] = []
    StoredModel.of(model, device)  # raises before anything is planned
    for one in shapes:
        make(one, lambda *made: kept.append(StoredPlan.of(one, *made)))  # noqa: B023  # called in this round
    with written_whole(path) as file:
        file.writelines(_write_plans(StoredModel.of(model, device, kept), needs, plugins))


class PlanStore:
    """The plans of one model that need no passes: those given, and those in the folder of `CACHE_DIR`, which gets further ones.

    `restored` makes a plan of what is stored, or None.
    """

    def __init__(
        self,
        model: Model,
        device: str,
        needs: Mapping[str, str],
        plugins: "PluginManager",
        folder: str,
        given: Sequence[StoredPlan],
        restored: Callable[[StoredPlan], Plan | None],
    ) -> None:
        self._model, self._device, self._needs, self._restored = model, device, needs, restored
        self._given = {plan.shapes: plan for plan in given}
        self._folder = PlanFolder(folder, plugins) if folder and model.files else None

    def get(self, shapes: Shapes) -> Plan | None:
        """The plan for these shapes; of a model whose files have changed since it was read only those given."""
        if (given := self._given.get(shapes)) is not None:
            return self._imported(given)
        found = None
        if self._folder is not None and all(is_as_read(*one) for one in self._model.files):
            stored = self._folder.get(self._needs, self._model.files[0][0], self._named(shapes))
            found = None if stored is None else stored.plans[0]
        return None if found is None else self._restored(found)

    def _imported(self, plan: StoredPlan) -> Plan | None:
        try:
            return self._restored(plan)
        except DovetailError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError) as error:  # names that the plan does not have, and the like
            reason = f"the imported plan of {printable(self._model.source)} does not fit together"
            raise FormatError(f"{reason}: {type(error).__name__}: {error!s:.200}", hint=_HINT) from error

    def _named(self, shapes: Shapes) -> Shapes | None:
        return None if all(t.is_static for t in self._model.inputs.values()) else shapes

    def keep(self, shapes: Shapes) -> Callable[[Planned, Notes], object] | None:
        """Keeps a plan that is made now; None without a folder."""
        folder = self._folder
        if folder is None:
            return None

        def put(planned: Planned, notes: Notes) -> None:
            plan = StoredPlan.of(shapes, planned, notes)
            whole, named = StoredModel.of(self._model, self._device, (plan,)), self._named(shapes)
            if folder.put(self._needs, whole, named) and named is not None:
                folder.put(self._needs, replace(whole, plans=()), None)

        return put


class PlanFolder:
    """The folder of `CACHE_DIR`, with an entry for each plan, and for the interface of models with open shapes.

    What is wrong with an entry is a miss.
    """

    def __init__(self, folder: str, plugins: "PluginManager") -> None:
        self._files, self._plugins = FileCache("plans", Path(folder)), plugins

    def get(self, needs: Mapping[str, str], path: str, shapes: Shapes | None) -> StoredModel | None:
        """The model of a file, with its plan for these shapes; with None, with the plan for its own shapes, if none are open."""
        entry = self._files.path(_key(needs, path, shapes))
        if entry is None or not os.path.exists(entry) or self._plugins.in_process:
            return None
        try:
            found = read_plans(entry, lambda _: needs, self._plugins, is_trusted=True)
        except FormatError as error:
            _log.info("%s", error)
            return None
        is_it = found.files[0].path == os.path.abspath(path) and all(one.is_current() for one in found.files)
        return found if is_it and (shapes is None or found.plans[0].shapes == shapes) else None

    def put(self, needs: Mapping[str, str], stored: StoredModel, shapes: Shapes | None) -> bool:
        """Keep a model with one plan, or without plans. What cannot be kept is logged, and the answer False."""
        try:
            if changed := [one.path for one in stored.files if one.checksum is None]:
                raise UsageError(f"the file '{printable(changed[0])}' changed since it was read")
            pieces = _write_plans(stored, needs, self._plugins, stored.files if stored.plans else ())
            reason: object = self._files.put_pieces(_key(needs, stored.files[0].path, shapes), pieces)
        except UsageError as error:
            reason = error
        if reason:
            _log.info("%s is not kept in CACHE_DIR: %s", printable(stored.source), reason)
        return not reason

    def keep_interface(self, needs: Mapping[str, str], model: Model, device: str) -> None:
        """Keep a model without plans, unless it is there: devices that this one is made of keep plans of their own."""
        if self.get(needs, model.files[0][0], None) is None:
            self.put(needs, StoredModel.of(model, device), None)


def _key(needs: Mapping[str, str], path: str, shapes: Shapes | None) -> str:
    """The name of an entry; what the entry is for is compared with what it says itself."""
    text = repr((sorted(needs.items()), os.path.abspath(path), shapes)).encode()
    return f"{zlib.crc32(text):032x}{zlib.adler32(text):032x}"
