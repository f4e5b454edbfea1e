"""oneDNN's C API, version 3, as far as this device uses it: opaque handles, descriptors, primitives.

Everything goes through `ctypes.CDLL`, which releases the GIL for the length of each call. Numbers are those of `dnnl_types.h`
and `dnnl_common_types.h`; oneDNN keeps them for all of version 3.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from ctypes import byref, c_char, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from functools import lru_cache, partial
from struct import pack
from typing import Any, NamedTuple, TypeVar

from dovetail.errors import DeviceError, DovetailError, OutOfMemory
from dovetail_cpu_onednn.enums import Alg, Arg, Flag
from dovetail_cpu_onednn.handles import Attr, Handle, Memory, MemoryDesc, Primitive, PrimitiveDesc, Stream, is_reference
from dovetail_cpu_onednn.memory import require_free_memory
from dovetail_cpu_onednn.signals import SignalStack, no_signals
from dovetail_cpu_onednn.signatures import CREATE, DESTROY, FUNCTIONS, KINDS
from dovetail_cpu_onednn.version import version_of

__all__ = [
    "Alg",
    "Arg",
    "Attr",
    "Flag",
    "Instead",
    "Memory",
    "MemoryDesc",
    "Onednn",
    "OnednnError",
    "Primitive",
    "PrimitiveDesc",
    "Stream",
    "Unimplemented",
]

MAX_NDIMS = 12
BF16, F32, S32, S8, U8 = 2, 3, 4, 5, 6
AVX2_VNNI, AVX512_VNNI, AVX512_BF16 = 0xF, 0x67, 0xE7
INFERENCE = 96
DESCRIPTORS = 1024
"""Descriptors and attributes that are kept. They never change, and planning asks for the same ones again and again."""
CHOICES = 512
"""Chosen implementations that are kept: models repeat their layers, and several steps of planning ask for the same."""
TAG_ANY = 1
MAX_POST_OPS = 32
"""Post-ops of one primitive. oneDNN answers "out of memory" for one more, which it does not mean."""

_Dims = c_int64 * MAX_NDIMS
_ARGUMENTS = tuple("iP" * count for count in range(100))
"""Formats of arguments: structures of a number and a pointer. Only a Concat may have more than 32 post-ops and a few."""
_OUT_OF_MEMORY, _INVALID_ARGUMENTS, _UNIMPLEMENTED = 1, 2, 3
_STATUS = {
    1: "out of memory",
    2: "invalid arguments",
    3: "unimplemented",
    4: "no further implementation",
    5: "runtime error",
    6: "not required",
}
_IMPL_INFO, _EXEC_ARG_MD, _SCRATCHPAD_MD, _DATA_TYPE = 8, 255, 136, 258


class OnednnError(DeviceError):
    """A call of oneDNN that failed."""


class Unimplemented(OnednnError):
    """oneDNN has no implementation for what a primitive was asked to do."""


H = TypeVar("H", bound=Handle)


class Instead(NamedTuple):
    """Where the name of oneDNN's first implementation begins with `first`, the second one is taken, if its begins with `second`.

    `is_spread`: the first one is asked about for `MANY` threads. brgconv describes a kernel for each column of a thread's block
    where windows reach more than a kernel's size beyond the input, 80 ms for 24,000 columns.
    """

    first: str = ""
    second: str = ""
    is_spread: bool = False


FIRST = Instead()
MANY = 256


_PAUSE = 2
"""`omp_pause_hard` of `omp_pause_resource_all`."""


class _Thread(threading.local):
    """How many threads a thread asks for, and of how many its team is, 0 before it sets them; and where its signals go."""

    def __init__(self) -> None:
        self.threads = self.team = 0
        self._stack = SignalStack()


class Onednn:
    """A loaded library with its CPU engine. Raises `AttributeError` for a library that is not oneDNN 3."""

    def __init__(self, cdll: ctypes.CDLL, path: str) -> None:
        self.path = path
        self._cdll = cdll
        # Calls that keep Python's lock: to release and take it again costs more than they take, and another thread may get it.
        self._holding = holding = ctypes.PyDLL(path, handle=cdll._handle)
        self.version = version_of(cdll).number
        self._f: dict[str, Any] = {}
        for name, kinds in {**FUNCTIONS, **{f"{n}_primitive_desc_create": f"*p{k}p" for n, k in CREATE.items()}}.items():
            self._declare(name, kinds)
        for name in DESTROY:
            self._declare(f"{name}_destroy", "p")
        self._create_memory, self._destroy_memory = self._f["memory_create"], self._f["memory_destroy"]
        self._size = self._declare("memory_desc_get_size", "p", c_size_t)
        self._arg_md = self._declare("primitive_desc_query_md", "pii", c_void_p)
        # Without declared arguments, which would be converted in each call: 0.15 us of 1.0. They are converted once.
        self._execute = cdll["dnnl_primitive_execute"]
        self._execute_holding = holding["dnnl_primitive_execute"]
        self._set_threads = getattr(holding, "omp_set_num_threads", None)
        if self._set_threads is not None:
            self._set_threads.restype = None
        self.avoided, self._orphan = "", False
        self._start_team = getattr(holding, "GOMP_parallel", None)
        self._end_team = getattr(holding, "omp_pause_resource_all", None)
        self._thread = _Thread()
        self._kept = lru_cache(DESCRIPTORS)(self._in_layout)
        self._kept_attr = lru_cache(DESCRIPTORS)(self._attr)
        self._kept_choice = lru_cache(CHOICES)(self._choice)
        self._kept_reorder = lru_cache(CHOICES)(self._reorder)
        self._kept_md = lru_cache(DESCRIPTORS)(self._arg_desc)
        self._engine = self._make(Handle, "engine", 1, 0)
        self._plain = self.attr()

    def _declare(self, name: str, kinds: str, result: Any = c_int) -> Any:
        slow = name.endswith("primitive_desc_create") or name in ("primitive_create", "stream_wait")
        function: Any = (self._cdll if slow else self._holding)[f"dnnl_{name}"]
        function.argtypes = [KINDS[kind] for kind in kinds]
        function.restype = result
        self._f[name] = function
        return function

    @property
    def has_bfloat16(self) -> bool:
        """Whether the CPU multiplies bfloat16 numbers by an instruction, and oneDNN may use it (`ONEDNN_MAX_CPU_ISA`)."""
        return self._has_isa(AVX512_BF16)

    @property
    def has_int8(self) -> bool:
        """Whether the CPU adds products of 8-bit numbers in 32 bits. On others oneDNN lets pairs of them saturate in 16."""
        return self._has_isa(AVX512_VNNI) or self._has_isa(AVX2_VNNI)

    @property
    def instructions(self) -> str:
        """The instructions that oneDNN may use, as the bits of its `dnnl_cpu_isa_t`."""
        return f"{self._cdll.dnnl_get_effective_cpu_isa():#x}"

    def _has_isa(self, wanted: int) -> bool:
        return bool(self._cdll.dnnl_get_effective_cpu_isa() & wanted == wanted)

    def set_threads(self, count: int) -> None:
        """How many threads of OpenMP what this thread calls may use. Without effect where oneDNN was built without OpenMP.

        Raises `DeviceError` for more than one in a process whose threads stayed behind when it was forked (see `end_team`).
        """
        if count > 1:
            if self._orphan:
                raise DeviceError(
                    "this process was forked from one in which oneDNN had worked with several threads, which do not exist here",
                    hint="start processes by spawn, fork before the first run, or compile with INFERENCE_NUM_THREADS=1",
                )
            if count != self._thread.team:
                self._start(count)
        self._thread.threads = count
        if self._set_threads is not None:
            self._set_threads(count)

    def _start(self, count: int) -> None:
        """Start the threads of OpenMP, which inherit what is blocked. libgomp ends those that a smaller team does not need."""
        if self._start_team is not None:
            with no_signals():
                self._start_team(self._holding.omp_get_num_threads, None, count, 0)
        self._thread.team = count

    def plan_threads(self, count: int) -> None:
        """The same for what this thread only asks about."""
        self._thread.threads = count
        if self._set_threads is not None:
            self._set_threads(count)

    def changes_threads(self, count: int) -> Callable[[], object]:
        """A call that sets the number of threads between the primitives of a run, for which `set_threads` was called before."""
        return partial(int, count) if self._set_threads is None else partial(self._set_threads, count)

    @property
    def planned_threads(self) -> int:
        """The number that this thread set last, 0 if none: the implementations that oneDNN chooses depend on it."""
        return self._thread.threads

    def end_team(self) -> None:
        """End the threads of OpenMP that this thread has started, before it forks: a forked process would wait for them for ever.

        The next run starts them again, in both processes. A team of another thread stays; that thread is not forked. OpenMP
        before 5.0 cannot end them.
        """
        if self._thread.team > 1 and self._end_team is not None and self._end_team(_PAUSE) == 0:
            self._thread.team = 0

    def forked(self) -> None:
        """Note that this is a new process, which has the thread that forked it and no other."""
        self._orphan = self._orphan or self._thread.team > 1

    # --- descriptors -----------------------------------------------------------------------------------------------

    def strided(self, dims: Sequence[int], strides: Sequence[int], dtype: int = F32) -> MemoryDesc:
        """A descriptor with strides in elements."""
        return self._kept(tuple(dims), dtype, tuple(strides))

    def tagged(self, dims: Sequence[int], tag: int, dtype: int = F32) -> MemoryDesc:
        """A descriptor with one of the layouts that oneDNN numbers; `TAG_ANY` leaves it to the primitive."""
        return self._kept(tuple(dims), dtype, tag)

    def _in_layout(self, dims: tuple[int, ...], dtype: int, layout: tuple[int, ...] | int) -> MemoryDesc:
        if isinstance(layout, int):
            return self._described(dims, dtype, "with_tag", len(dims), _dims(dims), dtype, layout)
        return self._described(dims, dtype, "with_strides", len(dims), _dims(dims), dtype, _dims(layout))

    def part(self, whole: MemoryDesc, dims: Sequence[int], offsets: Sequence[int]) -> MemoryDesc:
        """The descriptor of a box inside of another memory, to be used with the address of the whole."""
        return self._described(dims, whole.dtype, "submemory", whole.pointer, _dims(tuple(dims)), _dims(tuple(offsets)))

    def _described(self, dims: Sequence[int], dtype: int, how: str, *args: Any) -> MemoryDesc:
        found = self._make(MemoryDesc, "memory_desc", *args, create=f"memory_desc_create_{how}")
        found.dims, found.dtype, found.is_open = tuple(dims), dtype, args[-1] == TAG_ANY
        return found

    def nbytes(self, desc: MemoryDesc) -> int:
        """Bytes of the memory, padding included."""
        return int(self._size(desc.pointer))

    def query(self, desc: MemoryDesc, what: int, result: Any) -> Any:
        """A property of a descriptor, written to `result`, a variable of its type."""
        self._call("memory_desc_query", desc.pointer, what, byref(result))
        return result

    def equal(self, one: MemoryDesc, other: MemoryDesc) -> bool:
        """Whether two descriptors are the same in everything."""
        return one is other or bool(self._f["memory_desc_equal"](one.pointer, other.pointer))

    def arg_md(self, desc: PrimitiveDesc, arg: int, dims: Sequence[int]) -> MemoryDesc:
        """The descriptor that a primitive takes as its argument `arg`, of known dimensions."""
        return self._kept_md(desc, int(arg), tuple(dims))

    def taken(self, desc: PrimitiveDesc, arg: int, asked: MemoryDesc) -> MemoryDesc:
        """The descriptor that a primitive takes where it was asked for `asked`: another one only where that is open."""
        return self.arg_md(desc, arg, asked.dims) if asked.is_open else asked

    def _arg_desc(self, desc: PrimitiveDesc, arg: int, dims: tuple[int, ...]) -> MemoryDesc:
        found = self._arg_md(desc.pointer, _EXEC_ARG_MD, arg)
        copy = self._make(MemoryDesc, "memory_desc", found, create="memory_desc_clone")
        copy.dims, copy.dtype, copy.is_open = dims, self.query(copy, _DATA_TYPE, c_int()).value, False
        return copy

    # --- primitives ------------------------------------------------------------------------------------------------

    def attr(self, post_ops: Sequence[tuple[str, tuple[Any, ...]]] = (), masks: Sequence[tuple[str, int, int]] = ()) -> Attr:
        """Attributes with post-ops, each as the end of the name of its append function and its arguments.

        `masks` are the scales and zero points given when the primitive runs: `scales` or `zero_points`, the argument, the
        dimensions (as bits) along which there are several. Raises `Unimplemented` for more than `MAX_POST_OPS`.
        """
        if len(post_ops) > MAX_POST_OPS:
            raise Unimplemented(f"oneDNN: {len(post_ops)} post-ops; accepted: at most {MAX_POST_OPS}")
        return self._kept_attr(tuple(post_ops), tuple(masks))

    def _attr(self, post_ops: Sequence[tuple[str, tuple[Any, ...]]], masks: Sequence[tuple[str, int, int]]) -> Attr:
        attr = self._make(Attr, "primitive_attr")
        self._call("primitive_attr_set_scratchpad_mode", attr.pointer, 1)
        for kind, arg, mask in masks:
            self._call(f"primitive_attr_set_{kind}_mask", attr.pointer, arg, mask)
        if post_ops:
            chain = self._make(Handle, "post_ops")
            for kind, args in post_ops:
                given = [a.pointer if isinstance(a, Handle) else a for a in args]
                self._call(f"post_ops_append_{kind}", chain.pointer, *given)
            self._call("primitive_attr_set_post_ops", attr.pointer, chain.pointer)
        return attr

    def describe(self, name: str, *args: Any, attr: Attr | None = None, instead: Instead = FIRST) -> PrimitiveDesc:
        """The implementation of a primitive. `args` as in C; dims are tuples. Raises `Unimplemented`."""
        found = self._kept_choice((self.planned_threads, self.avoided), name, args, attr or self._plain, instead)
        if isinstance(found, str):
            raise Unimplemented(found)
        return found

    def _choice(self, _: object, name: str, args: tuple[Any, ...], attr: Attr, instead: Instead) -> PrimitiveDesc | str:
        """The result of `describe`, or the message of the error: it depends on the number of threads and on `avoided` too."""
        try:
            return self._chosen(name, [self._engine.pointer, *map(_c, args), attr.pointer], instead)
        except Unimplemented as error:
            return error.message

    def describe_reorder(self, src: MemoryDesc, dst: MemoryDesc, attr: Attr | None = None) -> PrimitiveDesc:
        """A copy from one layout to another. Raises `Unimplemented`."""
        return self._kept_reorder(self.planned_threads, src, dst, attr or self._plain)

    def _reorder(self, _: int, src: MemoryDesc, dst: MemoryDesc, attr: Attr) -> PrimitiveDesc:
        """The result of `describe_reorder`, which may depend on the number of threads."""
        engine = self._engine.pointer
        return self._chosen("reorder", [src.pointer, engine, dst.pointer, engine, attr.pointer])

    def describe_concat(self, dst: MemoryDesc, axis: int, sources: Sequence[MemoryDesc]) -> PrimitiveDesc:
        """Sources one behind the other along an axis. Raises `Unimplemented`."""
        array = (c_void_p * len(sources))(*[s.pointer for s in sources])
        return self._chosen("concat", [self._engine.pointer, dst.pointer, len(sources), axis, array, self._plain.pointer])

    def _chosen(self, name: str, given: Sequence[Any], instead: Instead = FIRST) -> PrimitiveDesc:
        require_free_memory()
        threads = self.planned_threads
        is_spread = instead.is_spread and threads > 0
        try:
            if is_spread:
                self.plan_threads(MANY)
            desc = self._make(PrimitiveDesc, "primitive_desc", *given, create=f"{name}_primitive_desc_create")
        finally:
            if is_spread:
                self.plan_threads(threads)
        desc.implementation = self._name(desc)
        if instead.first and desc.implementation.startswith(instead.first):
            self._f["primitive_desc_next_impl"](desc.pointer)  # leaves the last one as it was
            desc.implementation = self._name(desc)
            if not desc.implementation.startswith(instead.second):
                return self._chosen(name, given)
        elif is_spread:
            return self._chosen(name, given)
        if self.avoided and self.avoided in desc.implementation:
            desc = self._unavoidable(name, given, desc)
        desc.primitive, desc.scratchpad, desc.is_reference = None, self._scratchpad(desc), is_reference(desc.implementation)
        return desc

    def _unavoidable(self, name: str, given: Sequence[Any], desc: PrimitiveDesc) -> PrimitiveDesc:
        """The next implementation that is compiled and not one to avoid; the first one again where there is none."""
        following = self._f["primitive_desc_next_impl"]
        while following(desc.pointer) == 0:
            desc.implementation = self._name(desc)
            if desc.implementation.startswith("jit"):
                return desc
        again = self._make(PrimitiveDesc, "primitive_desc", *given, create=f"{name}_primitive_desc_create")
        again.implementation = self._name(again)
        return again

    def _name(self, desc: PrimitiveDesc) -> str:
        self._call("primitive_desc_query", desc.pointer, _IMPL_INFO, 0, byref(text := c_char_p()))
        return (text.value or b"").decode()

    def scratchpad(self, desc: PrimitiveDesc) -> int:
        """Bytes of the scratchpad that a primitive needs."""
        return desc.scratchpad[1]

    def scratchpad_md(self, desc: PrimitiveDesc) -> MemoryDesc:
        """The descriptor of that scratchpad, where there is one."""
        found = desc.scratchpad[0]
        assert found is not None
        return found

    def _scratchpad(self, desc: PrimitiveDesc) -> tuple[MemoryDesc | None, int]:
        found = self._arg_md(desc.pointer, _SCRATCHPAD_MD, 0)
        # Not a copy: it is asked for by way of the primitive's descriptor, which destroys it.
        return (MemoryDesc(c_void_p(found), bool), int(self._size(found))) if found else (None, 0)

    def primitive(self, desc: PrimitiveDesc) -> Primitive:
        """The primitive, compiled when it is first asked for, or taken from the library's cache. Raises `OutOfMemory`."""
        if desc.primitive is None:
            require_free_memory()
            self._call("primitive_create", byref(pointer := c_void_p()), desc.pointer)
            return self.own(desc, pointer)
        return desc.primitive

    def own(self, desc: PrimitiveDesc, pointer: c_void_p) -> Primitive:
        """Let a primitive that was made be the descriptor's."""
        made = desc.primitive = Primitive(pointer, self._f["primitive_destroy"])
        made.argument = c_void_p.from_param(pointer.value)
        return made

    # --- execution -------------------------------------------------------------------------------------------------

    def stream(self) -> Stream:
        """A stream; one thread at a time."""
        made = self._make(Stream, "stream", self._engine.pointer, 1)
        made.argument = c_void_p.from_param(made.pointer.value)
        return made

    def memory(self, desc: MemoryDesc, address: int, offset: int = 0) -> Memory:
        """A memory `offset` bytes behind an address that the caller keeps alive."""
        pointer = c_void_p()  # as `_make`, which takes half as long again: a plan makes hundreds
        if status := self._create_memory(byref(pointer), desc.pointer, self._engine.pointer, address + offset):
            self.check(status, "memory_create")
        made = Memory(pointer, self._destroy_memory)
        made.offset = offset
        return made

    def set_address(self, memory: Memory, address: int) -> None:
        """Move a memory object behind another address; the caller keeps the memory alive."""
        self._call("memory_set_data_handle", memory.pointer, address + memory.offset)

    def launch(
        self, primitive: Primitive, stream: Stream, arguments: Sequence[tuple[int, Memory]], is_short: bool = False
    ) -> "Launch":
        """A call that executes the primitive, its arguments ready: nothing is looked up when it is made.

        `is_short`: other threads of Python wait meanwhile.
        """
        values: list[Any] = []
        for arg, memory in arguments:
            values += (arg, memory.pointer.value)
        count = len(arguments)
        packed = pack(_ARGUMENTS[count] if count < len(_ARGUMENTS) else "iP" * count, *values)
        execute, array = self._execute_holding if is_short else self._execute, c_char_p.from_param(packed)
        call = partial(execute, primitive.argument, stream.argument, count, array)
        return Launch(call, (primitive, stream, arguments), packed)

    def address(self, name: str) -> int:
        """Where a function of the library is. Raises `AttributeError`."""
        return ctypes.cast(self._cdll[name], c_void_p).value or 0

    def execute(self, desc: PrimitiveDesc, arguments: Sequence[tuple[int, MemoryDesc, int]]) -> None:
        """Make and execute a primitive once: arguments with their descriptors and addresses."""
        scratch = ctypes.create_string_buffer(self.scratchpad(desc) + 64)
        address = -(-ctypes.addressof(scratch) // 64) * 64
        bound = [(arg, self.memory(md, at)) for arg, md, at in arguments]
        bound.append((Arg.SCRATCHPAD, self.memory(self.scratchpad_md(desc), address)))
        stream = self.stream()
        launch = self.launch(self.primitive(desc), stream, bound)
        self.check(launch.call(), "primitive_execute")
        self._call("stream_wait", stream.pointer)

    def multiply(self) -> None:
        """Multiply two matrices of 2 x 2 by the product that others build on; the first one in a process compiles its kernels."""
        order, size = c_char(b"N"), c_int64(2)
        a, b, c = [(c_float * 4)() for _ in range(3)]
        product = self._cdll["dnnl_sgemm"]
        product(order, order, size, size, size, c_float(1), a, size, b, size, c_float(0), c, size)

    # --- calls -----------------------------------------------------------------------------------------------------

    def _call(self, name: str, *args: Any) -> None:
        self.check(self._f[name](*args), name)

    def check(self, status: int, name: str) -> None:
        """Raise the error of a status that is not success."""
        if status:
            text = f"oneDNN: dnnl_{name}: {_STATUS.get(status, f'status {status}')}"
            raise _ERRORS.get(status, OnednnError)(text)

    def _make(self, kind: type[H], name: str, *args: Any, create: str = "") -> H:
        pointer = c_void_p()
        self._call(create or f"{name}_create", byref(pointer), *args)
        return kind(pointer, self._f[f"{name}_destroy"])


_ERRORS: dict[int, type[DovetailError]] = {
    _OUT_OF_MEMORY: OutOfMemory,
    _INVALID_ARGUMENTS: Unimplemented,
    _UNIMPLEMENTED: Unimplemented,
}


class Launch:
    """A bound execution: `call()` gives the status, 0 for success; `kept` is kept alive for it.

    Of a primitive `kept` begins with it and its stream, and `packed` has its arguments.
    """

    __slots__ = ("call", "kept", "packed")

    def __init__(self, call: Callable[[], int], kept: Sequence[Any], packed: bytes = b"") -> None:
        self.call = call
        self.kept = kept
        self.packed = packed


@lru_cache(DESCRIPTORS)
def _dims(values: tuple[int, ...]) -> Any:
    return _Dims(*values)


def _c(value: Any) -> Any:
    if isinstance(value, Handle):
        return value.pointer
    return _dims(value) if isinstance(value, tuple) else value
