"""The tuner: runs the candidates of a problem on the device, checks each against the default's result, and keeps the fastest."""

import contextlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import NDArray

from dovetail.cache import FileCache
from dovetail.dataclass import dataclass
from dovetail.device import DType, TensorType, TypedNode
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.kernels._tuned import Parameters, Problem, Tuned
from dovetail_gpu_opencl.launch import Constant, Counters, Launch, Read, Scalar, Scratch, Write
from dovetail_gpu_opencl.program import Programs
from dovetail_gpu_opencl.tuning import SECTION, tunings_of

__all__ = ["Timing", "tune"]

log = logging.getLogger("dovetail.tune")

CANDIDATES = 24
"""How many tilings of a problem are tried, those first that the cost model finds fastest."""
_REPEATS = 9
_FINALISTS, _ROUNDS = 4, 3
_MARGIN = 0.97
_LAUNCH = 3.5
"""Microseconds of a further launch: an empty kernel on an NVIDIA H200."""
_ALONE: AbstractContextManager[Any] = contextlib.nullcontext()
"""One process measures."""
_TOLERANCE = {DType.FLOAT16: 4e-3, DType.BFLOAT16: 3e-2, DType.FLOAT32: 2e-5, DType.FLOAT64: 1e-12}
"""Of the largest value: candidates add in other orders. Whole numbers are equal."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of one candidate in microseconds; None when its result was wrong."""

    tiling: Parameters
    microseconds: float | None


def tune(context: Any, device: Any, caps: Capabilities, nodes: Iterable[tuple[Tuned[Any], TypedNode]]) -> int:
    """Tune every distinct problem of the nodes that this machine has not tuned yet. Returns their number.

    Logs a line for each at level INFO. Raises `CompileError` and pyopencl's errors as building and running do.
    """
    known, count = tunings_of(caps), 0
    # Candidates are built apart, so that neither the device's programs nor its disk cache keep those that lost.
    programs = Programs(context, device, caps, FileCache(SECTION, limit=0))
    for kernel, node in nodes:
        problem = kernel.problem(node)
        if problem is None or known.found_here(problem.key):
            continue
        timings = measure(context, device, programs, kernel, node, candidates(problem, kernel))
        best = winner(timings)
        known.put(problem.key, best.tiling.numbers())
        count += 1
        took, default = best.microseconds, timings[0].microseconds
        log.info("%s: %s, %.1f us; the default takes %.1f us", problem.key, best.tiling, took, default)
    return count


def winner(timings: Sequence[Timing]) -> Timing:
    """The fastest whose result is right; the first unless another is faster by more than times of the same differ by."""
    first, fastest = timings[0], min((t for t in timings if t.microseconds is not None), key=lambda t: t.microseconds or 0.0)
    assert first.microseconds is not None  # it is what the others are compared with
    assert fastest.microseconds is not None
    return fastest if fastest.microseconds < _MARGIN * first.microseconds else first


def candidates(problem: Problem, kernel: Tuned[Any], limit: int = CANDIDATES) -> list[Parameters]:
    """The tilings to try: what the kernel would use, then the most promising."""
    current = kernel.tiling(problem)
    return [current, *(t for t in kernel.candidates(problem) if t != current)][:limit]


def measure(
    context: Any,
    device: Any,
    programs: Programs,
    kernel: Tuned[Any],
    node: TypedNode,
    tried: Sequence[Parameters],
    alone: AbstractContextManager[Any] = _ALONE,
) -> list[Timing]:
    """Run the tilings on random data. The result of the first is what the others are compared with.

    Those that were fastest, and the first, run again in turn: what disturbs the device for a while then disturbs all of them.
    `alone` is held whenever the device works: a lock, where several processes measure.
    """
    data = _data(node)
    with alone:
        bench = _Bench(context, device, node, data)
    expected: NDArray[Any] | None = None
    times: list[float | None] = []
    launched = []
    for tiling in tried:
        launches = kernel.using(tiling).launches(node)
        built = [programs.get(launch, node.name) for launch in launches]
        with alone:
            launched.append([bench.bound(*pair) for pair in zip(built, launches, strict=True)])
            result = bench.result(launched[-1])
        expected = result if expected is None else expected
        fastest = min((t for t in times if t is not None), default=np.inf)
        right = _alike(result, expected)
        with alone:
            times.append(bench.time(launched[-1], fastest) if right else None)
    ranked = sorted((i for i, t in enumerate(times) if t is not None), key=lambda i: times[i] or 0.0)
    for _ in range(_ROUNDS if len(ranked) > 1 else 0):
        with alone:
            for i in {0, *ranked[:_FINALISTS]}:
                times[i] = min(times[i] or np.inf, bench.time(launched[i], np.inf))
    return [Timing(tiling, time) for tiling, time in zip(tried, times, strict=True)]


def _alike(got: NDArray[Any], expected: NDArray[Any]) -> bool:
    """Whether both have NaN in the same places (post-ops of random data may give some), and nearly equal numbers elsewhere."""
    there = ~np.isnan(expected)
    if not np.array_equal(~np.isnan(got), there):
        return False
    scale = float(np.abs(expected[there]).max(initial=1e-30))
    wide = got[there].astype(np.float64) - expected[there]
    return bool(np.abs(wide).max(initial=0) <= _TOLERANCE.get(DType.of(expected.dtype), 0) * scale)


def _random(rng: np.random.Generator, tensor: TensorType) -> NDArray[Any]:
    """Random data, of 8-bit types all numbers."""
    dtype = np.dtype(tensor.dtype.numpy)
    if tensor.dtype not in (DType.INT8, DType.UINT8):
        return rng.standard_normal(tensor.dims).astype(dtype)
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max, tensor.dims, dtype, endpoint=True)


def _data(node: TypedNode) -> dict[str, NDArray[Any]]:
    """Random data for the inputs and operands of a node, and its constants."""
    rng = np.random.default_rng(0)
    names = zip((*node.node.inputs, *node.node.operands), (*node.inputs, *node.operands), strict=True)
    return {
        name: np.ascontiguousarray(given.value if given.value is not None else _random(rng, given))
        for name, given in names
        if given is not None
    }


class _Bench:
    """Buffers with data for one node, and a queue that takes times."""

    def __init__(self, context: Any, device: Any, node: TypedNode, data: Mapping[str, NDArray[Any]]) -> None:
        self._context = context
        self._queue = cl.CommandQueue(context, device, properties=cl.command_queue_properties.PROFILING_ENABLE)
        self._buffers: dict[str, Any] = {name: self._upload(array) for name, array in data.items()}
        self._constants: list[Any] = []
        self._result = np.empty(node.outputs[0].dims, node.outputs[0].dtype.numpy)
        self._buffers[node.node.outputs[0]] = cl.Buffer(context, cl.mem_flags.READ_WRITE, max(1, self._result.nbytes))
        self._output = self._buffers[node.node.outputs[0]]

    def bound(self, program: Any, launch: Launch) -> tuple[Any, Launch]:
        """A kernel object with its arguments set."""
        kernel = cl.Kernel(program, launch.entry)
        for position, value in enumerate(value for argument in launch.arguments for value in self._values(argument)):
            kernel.set_arg(position, value)
        return kernel, launch

    def result(self, bound: Sequence[tuple[Any, Launch]]) -> NDArray[Any]:
        """The results of the launches, in memory that held NaN before."""
        cl.enqueue_fill_buffer(self._queue, self._output, np.array([255], np.uint8), 0, self._result.nbytes)
        self._enqueue(bound)
        cl.enqueue_copy(self._queue, self._result, self._output)
        return self._result.copy()

    def time(self, bound: Sequence[tuple[Any, Launch]], fastest: float) -> float:
        """Microseconds of the launches on the device, and of what further ones cost: the least of several runs.

        Time between two launches does not count: it is that of the host, which in a model is ahead of the device. A candidate
        that takes three times as long as the fastest so far runs once.
        """
        best = self._least(bound, 1)
        return best if best > 3 * fastest else min(best, self._least(bound, _REPEATS - 1))

    def _least(self, bound: Sequence[tuple[Any, Launch]], runs: int) -> float:
        """The least time of runs without a pause, in which the device would slow down."""
        events = [self._enqueue(bound) for _ in range(runs)]
        self._queue.finish()
        taken = min(sum(e.profile.end - e.profile.start for e in run) for run in events)
        return float(taken / 1e3 + _LAUNCH * (len(bound) - 1))

    def _enqueue(self, bound: Sequence[tuple[Any, Launch]]) -> list[Any]:
        return [cl.enqueue_nd_range_kernel(self._queue, k, x.global_size, x.local_size) for k, x in bound]

    def _kept(self, array: NDArray[Any], access: int = cl.mem_flags.READ_ONLY) -> Any:
        """The array in a buffer that lives as long as this: a kernel object does not keep its arguments alive."""
        self._constants.append(self._upload(array, access))
        return self._constants[-1]

    def _upload(self, array: NDArray[Any], access: int = cl.mem_flags.READ_ONLY) -> Any:
        flags = access | cl.mem_flags.COPY_HOST_PTR
        return cl.Buffer(self._context, flags, hostbuf=array if array.size else np.zeros(1, array.dtype))

    def _values(self, argument: Any) -> tuple[Any, ...]:
        match argument:
            case Read(value) | Write(value):
                return (self._buffers[value],)
            case Constant(array):
                return (self._kept(array),)
            case Scratch(value, nbytes):
                name = f"{value}:{nbytes}"
                return (self._buffers.setdefault(name, cl.Buffer(self._context, cl.mem_flags.READ_WRITE, nbytes)),)
            case Counters(count):
                return self._kept(np.zeros(count, np.int32), cl.mem_flags.READ_WRITE), np.int32(0)
            case Scalar(value):
                return (value,)
        raise TypeError(f"a tuned kernel has the argument {argument}")
