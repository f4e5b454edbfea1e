"""The equipment of a worker: the recipe, the model's files once for each node, and the device that Ray assigned."""

import hashlib
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ray
import ray.exceptions
import ray.util.scheduling_strategies

import dovetail
from dovetail import CompiledModel, Core, Recipe
from dovetail.device import DeviceInfo
from dovetail.errors import DeviceNotFound, DovetailError, FormatError, PluginError, UnknownOption, UsageError
from dovetail_ray.address import check_address
from dovetail_ray.sinks import written_whole

__all__ = ["Parcel", "assigned_device", "check_nodes", "compiled_for", "initialize", "recipe_of", "runtime_env", "start_ray"]

_THREADS = "INFERENCE_NUM_THREADS"
"""The property of devices on the CPU for the number of their threads."""

Model = str | os.PathLike[str] | dovetail.Model | CompiledModel | Recipe
"""A model, in the forms that are accepted."""


def recipe_of(model: Model, device: str | None = None, properties: Mapping[str, Any] | None = None) -> Recipe:
    """The recipe of a model; a path or `Model` is compiled here first, which shows what it requires.

    Device and properties are those of a compiled model or recipe unless given. Raises as `Core.compile_model`.
    """
    if isinstance(model, CompiledModel | Recipe):
        recipe = model.recipe if isinstance(model, CompiledModel) else model
        return replace(recipe, device=device or recipe.device, properties={**recipe.properties, **(properties or {})})
    core = Core()
    given = {} if device is None else {"device": device}
    with core.compile_model(model, properties=properties, **given) as compiled:
        return compiled.recipe


def runtime_env(recipe: Recipe, install: bool = False, further: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Ray's `runtime_env` for workers that run a recipe: the driver's DOVETAIL variables, and with `install` the packages.

    Ray installs them by pip, of exactly the versions that the recipe requires, once on each node. `further` entries win.
    """
    variables = {name: value for name, value in os.environ.items() if name.startswith("DOVETAIL_")}
    env: dict[str, Any] = {"env_vars": variables} if variables else {}
    if install:
        env["pip"] = [f"{name}=={version}" for name, version in recipe.requires.items()]
    return {**env, **(further or {})}


@dataclass(frozen=True)
class Parcel:
    """A recipe without its content, which is in Ray's object store and comes to each node once, where it is needed."""

    recipe: Recipe
    content: Any

    @staticmethod
    def of(recipe: Recipe) -> "Parcel":
        """Put the model's content into the object store, or its files, where there are other nodes.

        Raises `FormatError` when a file has changed.
        """
        if not _is_there(recipe):
            raise FormatError(
                f"a file of {recipe.source} is missing or has changed since it was compiled", hint="compile it again"
            )
        if recipe.files and len(_nodes()) == 1:
            return Parcel(recipe, None)
        files = {name: Path(recipe.folder, name).read_bytes() for name in recipe.files}
        return Parcel(replace(recipe, content=b""), ray.put(files or recipe.content))

    def unpacked(self) -> Recipe:
        """The recipe with what it needs on this node: files where the driver has them, else a copy that workers share.

        Raises `PluginIncompatible` as `Recipe.check`, before anything is copied.
        """
        self.recipe.check()
        if not self.recipe.files:
            return replace(self.recipe, content=ray.get(self.content))
        if self.content is None or _is_there(self.recipe):
            return self.recipe
        return replace(self.recipe, folder=_folder_with(self.recipe, self.content))


def compiled_for(recipe: Recipe, cpus: float = 1, gpus: float = 0) -> CompiledModel:
    """The model compiled in this process, for the GPU that Ray assigned, if any, and with so many threads.

    Raises what `Recipe.check` and `Core.compile_model` raise.
    """
    if gpus > 1:
        raise UsageError(f"num_gpus={gpus} for one worker; accepted: up to 1", hint="give more workers")
    if gpus:
        ids = ray.get_runtime_context().get_accelerator_ids().get("GPU", [])
        recipe = replace(recipe, device=assigned_device(recipe.device, ids, Core(**recipe.settings).devices))
    return _with_threads(recipe, max(1, int(cpus)))


def assigned_device(asked: str, ids: Sequence[str], devices: Sequence[DeviceInfo]) -> str:
    """The device for the GPU that Ray assigned to this process: `ids` are its numbers among those of the node.

    `asked` is a type of device, `GPU`, or `DEFAULT`. Where the driver shows only the assigned GPUs, because Ray restricts what it
    may see, it is the first one; otherwise the one of that number. Raises `UsageError` for other names, `DeviceNotFound`.
    """
    name = asked.strip().upper()
    if ":" in name or "." in name:
        raise UsageError(f"the device {asked!r} with GPUs that Ray assigns", hint="give a type of device, or GPU")
    gpus = [info for info in devices if info.kind == "GPU" and name in (info.type, "GPU", "DEFAULT")]
    gpus.sort(key=lambda info: (-info.priority, int(info.name.rpartition(".")[2])))
    gpus = [info for info in gpus if info.type == gpus[0].type]
    if not ids:
        raise DeviceNotFound("Ray assigned no GPU to this worker", hint="give num_gpus=1, on the command line --gpus 1")
    index = 0 if len(gpus) <= len(ids) else int(ids[0])
    if index >= len(gpus):
        found = ", ".join(info.name for info in devices) or "none"
        raise DeviceNotFound(f"Ray assigned GPU {', '.join(ids)}, but {asked} has {len(gpus)} GPUs here; devices: {found}")
    return gpus[index].name


def _with_threads(recipe: Recipe, cpus: int) -> CompiledModel:
    """Compiled with so many threads, where the device has that property and nobody set it."""
    if _THREADS not in recipe.properties:
        with suppress(UnknownOption):
            compiled = CompiledModel.of(replace(recipe, properties={**recipe.properties, _THREADS: cpus}))
            _ = compiled.device  # compiles
            return compiled
    compiled = CompiledModel.of(recipe)
    _ = compiled.device
    return compiled


def check_nodes(recipe: Recipe, env: Mapping[str, Any]) -> None:
    """Run `recipe.check` on each node of the cluster, in the workers' environment; without a cluster, start a Ray here.

    Raises its error with the node's address, and `PluginError` when Ray cannot make the environment.
    """
    start_ray()
    check = ray.remote(num_cpus=0, max_retries=3)(_checked)
    nodes, light = _nodes(), replace(recipe, content=b"")
    tasks = [
        check.options(
            runtime_env=dict(env) or None,
            scheduling_strategy=ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
        ).remote(light)
        for node in nodes
    ]
    try:
        found = ray.get(tasks)
    except ray.exceptions.RuntimeEnvSetupError as error:
        reason = str(error).strip().splitlines()[-1]
        hint = "see env and install, on the command line --install; Ray's own report is the cause"
        raise PluginError(f"Ray cannot make the environment of the workers: {reason}", hint=hint) from error
    for node, refusal in zip(nodes, found, strict=True):
        if refusal is not None:
            raise type(refusal)(f"on the node {node['NodeManagerAddress']}: {refusal.message}", hint=refusal.hint)


def start_ray() -> None:
    """Start a Ray on this machine, unless this program uses one, or `RAY_ADDRESS` names one."""
    if not ray.is_initialized():
        address = os.environ.get("RAY_ADDRESS", "")
        initialize(address, **({} if address else {"address": "local", "include_dashboard": False}))


def initialize(cluster: str, **options: Any) -> None:
    """Call `ray.init`, for the address of a `cluster` or to start a Ray. Raises `UsageError` with Ray's reason if that fails."""
    check_address(cluster)
    try:
        ray.init(log_to_driver=False, **options)
    except Exception as error:  # of many types, and a bare Exception too
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        if cluster:
            raise UsageError(f"no Ray answers at {cluster}: {reason}", hint="start one: ray start --head") from error
        hint = "try `ray start --head`: it has a log of each of its processes, by default in /tmp/ray/session_latest/logs"
        raise UsageError(f"Ray cannot be started on this machine: {reason}", hint=hint) from error


def _nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]  # Ray gives it no types


def _checked(recipe: Recipe) -> DovetailError | None:
    try:
        recipe.check()
    except DovetailError as error:
        return error
    return None


def _is_there(recipe: Recipe) -> bool:
    """Whether the recipe's folder has its files, with their content."""
    for name, digest in recipe.files.items():
        try:
            with Path(recipe.folder, name).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                    return False
        except OSError:
            return False
    return True


def _folder_with(recipe: Recipe, content: Any) -> str:
    """A folder of this node with the model's files, which its workers share."""
    user = getattr(os, "getuid", lambda: "user")()
    folder = Path(tempfile.gettempdir(), f"dovetail-models-{user}", recipe.digest)
    if not _is_there(replace(recipe, folder=str(folder))):
        for name, data in ray.get(content).items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            written_whole(path, _writer(data))
    return str(folder)


def _writer(data: bytes) -> Callable[[str], None]:
    def write(file: str) -> None:
        Path(file).write_bytes(data)

    return write
