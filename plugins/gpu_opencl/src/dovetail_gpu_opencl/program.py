"""Builds programs, each distinct one once, with binaries kept on disk."""

import contextlib
import re
import time
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import pyopencl as cl

from dovetail.cache import FileCache, cache_key
from dovetail.device import current_budget, phase
from dovetail.errors import CompileError
from dovetail.locks import Lock
from dovetail_gpu_opencl import driver_caches
from dovetail_gpu_opencl.builders import Builders, Job, count
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.declarations import WITHOUT_HEADER, with_declarations
from dovetail_gpu_opencl.enqueue import KernelObject, function
from dovetail_gpu_opencl.failures import as_dovetail, out_of_memory
from dovetail_gpu_opencl.launch import Argument, Image, Launch, Scalar, Write
from dovetail_gpu_opencl.lifetime import IN_USE
from dovetail_gpu_opencl.linker import HINT, lacks

__all__ = ["ARGUMENT_INFO", "CACHE_SECTION", "Programs", "build_options", "built_binary", "check_signature", "check_source"]

BUILD_OPTIONS = ("-cl-std=CL1.2", "-cl-mad-enable")
CACHE_SECTION = "opencl"
ARGUMENT_INFO = "-cl-kernel-arg-info"
"""The option that `check_signature` needs to see what kind each argument is."""
_LONG = 0.05
"""Seconds that a program takes to build from which on other processes, which take some hundred ms to start, help."""
SPARE = 64
"""Kernel objects of an entry that are kept for later requests. The equal layers of a model launch the same entry."""
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_MAY_HAVE_KERNELS = re.compile(r"(?<!-)\b(?:__)?kernel\b|#\s*include\b")
_ABOUT, _PLACE, _QUALIFIER = cl.kernel_arg_info, cl.kernel_arg_address_qualifier, cl.kernel_arg_type_qualifier
_CATCHING = Lock()
"""Held while warnings are caught: of two threads that did it at once, the last to end would restore what the other had set."""
_NUMBERS = {"f": ("float",), "i": ("int", "uint", "unsigned int"), "I": ("uint", "int", "unsigned int")}
"""NumPy's character of a data type -> the names in OpenCL C of parameters that take it."""
_OTHER_NUMBERS = frozenset({"float", "int", "uint", "unsigned int", "double", "half", "long", "ulong", "unsigned long", "short"})


def build_options(launch: Launch) -> list[str]:
    """The options that a launch's program is built with.

    PoCL prints "2 warnings generated." for each build that has some: this package's kernels are built without warnings. Those of
    users keep them in the build log, which DUMP_KERNELS writes.
    """
    quiet = () if ARGUMENT_INFO in launch.options else ("-w",)
    return [*BUILD_OPTIONS, *quiet, *launch.options]


Key = tuple[str, tuple[str, ...]]
"""The source and the options of a launch."""


class Programs:
    """The programs of one context. `builds` and `hits` count sources compiled and binaries taken from disk.

    `name` is the device's for other processes, which help to build many programs for a GPU.
    """

    def __init__(self, context: Any, device: Any, caps: Capabilities, cache: FileCache, name: str = "") -> None:
        self._context, self._device, self._caps, self._cache, self._name = context, device, caps, cache, name
        self._built: dict[Key, Any] = {}
        self._prepared: dict[Key, bytes] = {}
        self._spare: dict[tuple[int, str], deque[KernelObject]] = {}
        self._lock = Lock()
        # Elsewhere the call may be there without a driver's function behind it.
        self._copies = caps.kind == "CPU" and _version(device) >= (2, 1) and function("clCloneKernel") is not None
        self.builds = 0
        self.hits = 0

    def get(self, launch: Launch, node: str) -> Any:
        """The program of a launch. Raises `CompileError` with node, file, build log and numbered source."""
        key = launch.source, launch.options
        with phase(node, "prepare", kernel=launch.file, entry=launch.entry) as details:
            details["cache"] = "this process"
            if key in self._built:
                return self._built[key]
            return self._made(key, launch, node, details)

    def prepare(self, wanted: Iterable[tuple[Launch, str]], *, apart: bool) -> None:
        """Have the compiler work for `get`, given launches and their nodes: for GPUs many programs in several processes.

        With `apart` others are built in a context where nothing waits for them. In the one in which kernels are launched
        NVIDIA's compiler holds up launches and copies, for 0.1 s a program. Its cache then has for `get` what it made here.
        """
        if not apart and self._caps.kind != "GPU":
            return
        # Sources of users are checked before they are built.
        given = [(launch, node) for launch, node in wanted if apart or ARGUMENT_INFO not in launch.options]
        missing = {(x.source, x.options): (x, node) for x, node in given if (x.source, x.options) not in self._built}
        if not missing or not (apart or self._helpers(len(missing))):
            return
        missing = {k: v for k, v in missing.items() if self._cache.get(self._on_disk(v[0], build_options(v[0]))) is None}
        helpers = self._helpers(len(missing))
        if not missing or not (apart or helpers):
            return
        context = self._other_context() if apart else None
        started = time.perf_counter()
        self._build_ahead(*missing.pop(next(iter(missing))), context)
        if time.perf_counter() - started < _LONG:  # the driver has them in a cache of its own
            helpers = 0
        jobs: dict[Key, Job] = {key: (launch.source, build_options(launch)) for key, (launch, _) in missing.items()}
        with Builders(self._name, jobs, helpers) as builders:
            while (key := builders.take()) is not None:
                self._build_ahead(*missing[key], context)
        self._prepared |= builders.binaries

    def _other_context(self) -> Any:
        with contextlib.suppress(cl.Error):
            return cl.Context([self._device])
        return None

    def _build_ahead(self, launch: Launch, node: str, context: Any) -> None:
        """In another context, if there is one: there `get` says later what is wrong with a source."""
        _check_going_on(node)
        if context is None:
            self.get(launch, node)
            return
        with contextlib.suppress(cl.Error):
            if binary := built_binary(context, *self._with_declarations(launch.source, build_options(launch))):
                self._prepared[launch.source, launch.options] = binary

    def _helpers(self, programs: int) -> int:
        return count(programs) if self._caps.kind == "GPU" and self._name else 0

    def _on_disk(self, launch: Launch, options: list[str]) -> str:
        return cache_key(self._caps.identity, *options, launch.source)

    def _made(self, key: Key, launch: Launch, node: str, details: dict[str, Any]) -> Any:
        with self._lock:
            if key not in self._built:
                _check_going_on(node)
                options = build_options(launch)
                on_disk, prepared = self._on_disk(launch, options), self._prepared.pop(key, None)
                if prepared is not None:
                    self._cache.put(on_disk, prepared)
                found = self._from_binary(prepared or self._cache.get(on_disk), options)
                self.hits += found is not None and prepared is None
                self.builds += found is not None and prepared is not None
                details["cache"] = "none" if found is None else "disk"
                self._built[key] = found or self._from_source(on_disk, launch, options, node)
            return self._built[key]

    def kernel(self, program: Any, entry: str, alike: KernelObject | None = None) -> KernelObject:
        """A kernel object of one of these programs, whose arguments may be set: one that was given back, or a new one.

        The first that was given back is the first to be taken, so that nodes of one graph get theirs again. A new one has the
        arguments of `alike`, of the same entry, where the driver copies kernel objects.
        """
        try:
            return self._spare[id(program), entry].popleft()
        except (KeyError, IndexError):
            return KernelObject(program, entry, alike if self._copies else None)

    def lend(self, owner: object, kernels: Iterable[tuple[Any, str, KernelObject]]) -> None:
        """Take these kernel objects, each after its program and entry, back when `owner`, which alone launches them, is gone."""
        places = [
            (self._spare.setdefault((id(program), entry), deque(maxlen=SPARE)), kernel) for program, entry, kernel in kernels
        ]
        weakref.finalize(owner, _give_back, places).atexit = False

    def _from_binary(self, binary: bytes | None, options: list[str]) -> Any:
        if binary is None:
            return None
        try:
            return _quietly_build(cl.Program(self._context, [self._device], [binary]), options)
        except cl.Error:  # made by a driver that calls itself the same but is not
            return None

    def _with_declarations(self, source: str, options: list[str]) -> tuple[str, list[str]]:
        """Source and options for a build without the header of all functions, where the driver has one that they can replace."""
        if self._caps.parses_header and ARGUMENT_INFO not in options:  # sources of users may call any function
            declared = with_declarations(source, options)
            return (source, options) if declared is None else (declared, [*options, WITHOUT_HEADER])
        return source, options

    def _build_twice(self, source: str, options: list[str]) -> Any:
        first, first_options = self._with_declarations(source, options)
        try:
            return _quietly_build(cl.Program(self._context, first), first_options)
        except cl.Error:
            # Where many processes fill PoCL's empty cache at once, two of 72 failed to build a good kernel; so once more.
            return _quietly_build(cl.Program(self._context, source), options)

    def _from_source(self, key: str, launch: Launch, options: list[str], node: str) -> Any:
        try:
            program = self._build_twice(launch.source, options)
        except cl.Error as error:
            if isinstance(error, cl.RuntimeError) and not out_of_memory(error):
                raise CompileError(_build_message(launch, node, str(error)), hint=_build_hint(self._caps)) from None
            raise as_dovetail(error, f"node {node}: building {launch.file}") from error
        self.builds += 1
        if not self._cache.keeps:  # for a binary PoCL compiles every kernel once more
            return program
        with contextlib.suppress(cl.Error):  # a driver that gives no binary costs the next process a build
            if binary := _binary(program):
                self._cache.put(key, binary)
        return program


def _version(device: Any) -> tuple[int, ...]:
    """Major and minor number of the OpenCL that the device implements."""
    return tuple(int(number) for number in device.version.split()[1].split("."))


def built_binary(context: Any, source: str, options: Sequence[str]) -> bytes:
    """The binary of a program built in a context; empty where the driver gives none. Raises `pyopencl.Error`."""
    return _binary(_quietly_build(cl.Program(context, source), options))


def _binary(program: Any) -> bytes:
    """That of a program; empty where the driver gives none."""
    binaries = program.get_info(cl.program_info.BINARIES)
    return bytes(binaries[0]) if len(binaries) == 1 else b""


def _check_going_on(node: str) -> None:
    """Raise when the process is ending, or the run or plan for which programs are built was cancelled."""
    IN_USE.check()
    if (budget := current_budget()) is not None and budget.cancelled:
        budget.check(f"node {node}")


def _give_back(places: Iterable[tuple[deque[KernelObject], KernelObject]]) -> None:
    for spare, kernel in places:
        spare.append(kernel)


def check_source(launch: Launch, node: str) -> None:
    """Raises `CompileError` for a source without kernels, which ended the process on NVIDIA's driver."""
    if not any(map(_MAY_HAVE_KERNELS.search, (_COMMENTS.sub("", launch.source), *launch.options))):
        raise _not_in_source(launch, node, ())


def check_signature(program: Any, launch: Launch, node: str, hint: str) -> None:
    """Raises `CompileError` unless the program has the launch's entry, with as many arguments as the launch gives, each of its
    kind: drivers crash on a buffer that is declared as an image.
    """
    names = program.kernel_names.split(";")
    if launch.entry not in names:
        raise _not_in_source(launch, node, names)
    where = f"node {node}: the kernel {launch.entry!r} of {launch.file}"
    kernel = cl.Kernel(program, launch.entry)
    taken = kernel.num_args
    if taken != len(launch.arguments):
        given = ", ".join(str(a) for a in launch.arguments)
        declared = re.search(rf"\b{re.escape(launch.entry)}\s*\(([^)]*)\)", launch.source)
        shown = f": {' '.join(declared[1].split())}" if declared else ""
        raise CompileError(
            f"{where} takes {taken} arguments{shown}. It is given {len(launch.arguments)}: {given}",
            hint=hint,
        )
    for index, argument in enumerate(launch.arguments):
        wrong = _misfit(kernel, index, argument)
        if wrong:
            raise CompileError(f"{where}: argument {index} is {wrong}. It is given {argument}", hint=hint)


def _not_in_source(launch: Launch, node: str, names: Sequence[str]) -> CompileError:
    found = ", ".join(filter(None, names)) or "none"
    said = f"node {node}: the kernel {launch.entry!r} of {launch.file} is not in the source"
    return CompileError(said, hint=f"kernels there: {found}")


def _misfit(kernel: Any, index: int, argument: Argument) -> str:
    """The declared and the expected arguments; empty where they agree, or where the driver does not report them."""
    try:
        name, place = (kernel.get_arg_info(index, what) for what in (_ABOUT.TYPE_NAME, _ABOUT.ADDRESS_QUALIFIER))
    except cl.Error:
        return ""
    image = name.startswith("image")
    if isinstance(argument, Image):
        fits, accepted = image, "an image"
    elif isinstance(argument, Scalar):
        names = _NUMBERS.get(argument.value.dtype.char, (name,))
        fits = place == _PLACE.PRIVATE and (name in names or name not in _OTHER_NUMBERS)
        accepted = f"a number of type {names[0]}"
    elif isinstance(argument, Write) and kernel.get_arg_info(index, _ABOUT.TYPE_QUALIFIER) & _QUALIFIER.CONST:
        fits, accepted, name = False, "a pointer to what a kernel may write", f"const {name}"
    else:
        fits, accepted = place in (_PLACE.GLOBAL, _PLACE.CONSTANT) and not image, "a pointer to __global or __constant"
    qualifier = {_PLACE.LOCAL: "__local ", _PLACE.GLOBAL: "__global "}.get(place, "") if not image else ""
    return "" if fits else f"declared as {qualifier}{name}; accepted: {accepted}"


def _quietly_build(program: Any, options: Sequence[str]) -> Any:
    with _CATCHING, warnings.catch_warnings():
        # pyopencl warns for every build log that is not empty; a log that matters comes with an error.
        warnings.simplefilter("ignore", cl.CompilerWarning)
        return program.build(options=list(options), cache_dir=False)


def _build_message(launch: Launch, node: str, log: str) -> str:
    numbered = "\n".join(f"{number:5} {line}" for number, line in enumerate(launch.source.splitlines(), 1))
    said = re.sub(r"\A(?:clBuildProgram failed: \w+(?: - )?)+", "", log).strip() or log.strip()
    return f"node {node}: the kernel {launch.entry!r} of {launch.file} does not compile:\n{said}\nsource:\n{numbered}"


def _build_hint(caps: Capabilities) -> str:
    if not caps.needs_linker:
        return ""
    if lacking := lacks(caps.identity):
        return f"this driver {lacking}: {HINT}"
    folder = driver_caches.unusable()
    return f"this driver compiles into files, and cannot write {folder}: {driver_caches.HINT}" if folder else ""
