"""The versions of one model: loaded beside the old ones, switched, and closed when their last request has ended."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dovetail.errors import DovetailError
from dovetail.runtime import AsyncInferQueue, CompiledModel, Core
from dovetail_kserve.datatypes import metadata_of
from dovetail_kserve.errors import RequestRefused
from dovetail_kserve.sources import FileState, Source, find_versions
from dovetail_kserve.statistics import Statistics

__all__ = ["LoadedVersion", "Options", "Versions"]

log = logging.getLogger("dovetail")


@dataclass(frozen=True)
class Options:
    """How models are compiled: the device, its properties, and the requests that run at once (0: as many as it finds best)."""

    device: str
    properties: Mapping[str, Any] = field(default_factory=dict)
    requests: int = 0


class LoadedVersion:
    """A version that is compiled and planned. `leases` counts the requests that use it."""

    def __init__(self, number: str, state: FileState, compiled: CompiledModel, requests: int, statistics: Statistics) -> None:
        self.number = number
        self.state = state
        self.compiled = compiled
        self.statistics = statistics
        self.inputs = {name: metadata_of(name, tensor) for name, tensor in compiled.inputs.items()}
        self.outputs = _output_metadata(compiled)
        self.queue = AsyncInferQueue(compiled, requests)
        # Requests wait here rather than in the queue, where each of them would occupy a thread.
        self.free = asyncio.Semaphore(len(self.queue))
        self.leases = 0
        self.retired = False

    @property
    def has_rows(self) -> bool:
        """True when the first dimension of each input is open: the number of rows of a request."""
        return bool(self.inputs) and all(i["shape"][:1] == [-1] for i in self.inputs.values())


def _output_metadata(compiled: CompiledModel) -> dict[str, dict[str, Any]]:
    """The declared types of the outputs; of those without one, that of the first plan, its dimensions open."""
    declared = compiled.model.graph.types
    planned = compiled.outputs
    found = {}
    for name in compiled.model.outputs:
        tensor, known = declared.get(name), planned.get(name)
        if tensor is None and known is not None:
            tensor = known.with_shape(None if known.shape is None else (None,) * len(known.shape))
        if tensor is not None:
            found[name] = metadata_of(name, tensor)
    return found


class Versions:
    """All versions of a model. Threads load what has changed, one at a time; requests come on the event loop."""

    def __init__(self, core: Core, source: Source, options: Options, say: Callable[[str], object]) -> None:
        self._core, self._source, self._options, self._say = core, source, options, say
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._loaded: Mapping[str, LoadedVersion] = {}
        self._seen: dict[str, FileState] = {}
        self._failed: dict[str, FileState] = {}
        self.statistics: dict[str, Statistics] = {}
        self.reloads = {"success": 0, "fail": 0}

    @property
    def loaded(self) -> Mapping[str, LoadedVersion]:
        """The versions that serve requests, the highest last."""
        return self._loaded

    # --- requests ------------------------------------------------------------------------------------------------------

    def get(self, version: str = "") -> LoadedVersion:
        """A version, or the highest. Raises `RequestRefused`: 404 for one that does not exist, 503 while nothing is loaded."""
        loaded = self._loaded
        if not loaded:
            raise RequestRefused(f"the model {self._source.name!r} is not loaded yet", status=503, hint="ask again later")
        if version and version not in loaded:
            known = ", ".join(loaded)
            raise RequestRefused(f"the model {self._source.name!r} has no version {version!r:.40}; it has {known}", status=404)
        return loaded[version or tuple(loaded)[-1]]

    @contextmanager
    def lease(self, version: str = "") -> Iterator[LoadedVersion]:
        """A version for the `with` statement, in which it is not closed. Raises as `get`."""
        with self._lock:
            found = self.get(version)
            found.leases += 1
        try:
            yield found
        finally:
            with self._lock:
                found.leases -= 1
                is_last = found.retired and found.leases == 0
            if is_last:
                threading.Thread(target=found.compiled.close, name="dovetail-close").start()

    # --- loading -------------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load what is not loaded as it is now on disk. Raises what reading and compiling raise."""
        with self._loading:
            found = find_versions(self._source, self._formats)
            for version, path in found.items():
                state = FileState.of(path)
                if version not in self._loaded or self._loaded[version].state != state:
                    self._switch(version, self._compile(version, state))
            self._drop(found)

    def refresh(self) -> None:
        """As `load`, for files that are as they were at the last call, so not being written. An error leaves the old version."""
        with self._loading:
            self._refresh()

    def _refresh(self) -> None:
        try:
            found = find_versions(self._source, self._formats)
            states = {version: FileState.of(path) for version, path in found.items()}
        except (DovetailError, OSError) as error:
            log.debug("%s: %s", self._source.name, error)
            return
        for version, state in states.items():
            is_new = version not in self._loaded or self._loaded[version].state != state
            if is_new and self._seen.get(version) == state and self._failed.get(version) != state:
                self._reload(version, state)
        self._seen = states
        self._drop(found)

    @property
    def _formats(self) -> set[str]:
        return {record.key for record in self._core.plugins.records() if record.kind == "frontends"}

    def _reload(self, version: str, state: FileState) -> None:
        try:
            loaded = self._compile(version, state)
        except Exception as error:  # whatever a file makes a frontend or device raise, the others are looked at again
            self._failed[version] = state
            self.reloads["fail"] += 1
            failed = f"{self._source.name}, version {version}: {state.path} cannot be loaded, the old one stays"
            log.warning("%s: %s", failed, error)
            return
        self._switch(version, loaded)
        self.reloads["success"] += 1
        self._say(f"Loaded {self._source.name}, version {version}.")

    def _compile(self, version: str, state: FileState) -> LoadedVersion:
        model = self._core.read_model(state.path)
        for name, tensor in model.inputs.items():
            metadata_of(name, tensor)  # before compiling, which may take minutes
        compiled = self._core.compile_model(model, self._options.device, dict(self._options.properties))
        try:
            _plan(compiled)
            statistics = self.statistics.setdefault(version, Statistics())
            return LoadedVersion(version, state, compiled, self._options.requests, statistics)
        except BaseException:
            compiled.close()
            raise

    def _switch(self, version: str, loaded: LoadedVersion | None) -> None:
        """Serve this instead of the old one; None takes the version away."""
        with self._lock:
            versions = dict(self._loaded)
            old = versions.pop(version, None)
            if loaded is not None:
                versions[version] = loaded
            self._loaded = dict(sorted(versions.items(), key=lambda item: int(item[0])))
            if old is not None:
                old.retired = True
        if old is not None and old.leases == 0:
            old.compiled.close()

    def _drop(self, found: Mapping[str, Any]) -> None:
        """Take versions away whose files are gone."""
        for version in set(self._loaded) - set(found):
            self._switch(version, None)
            self._say(f"{self._source.name}, version {version}, is gone.")

    def close(self) -> None:
        """Free all versions, when no requests come any more."""
        for version in tuple(self._loaded):
            self._switch(version, None)


def _plan(compiled: CompiledModel) -> None:
    """Make the first plan, dimensions that are open taken as 1, so that the first request does not wait for it."""
    tensors = compiled.inputs.values()
    if all(tensor.shape is not None for tensor in tensors):
        shapes = tuple(tuple(d if isinstance(d, int) else 1 for d in tensor.shape or ()) for tensor in tensors)
        try:
            compiled.plan(shapes)
        except DovetailError:
            # A model need not take rows of length 1; a shape without open dimensions is its own.
            if all(tensor.is_static for tensor in tensors):
                raise
