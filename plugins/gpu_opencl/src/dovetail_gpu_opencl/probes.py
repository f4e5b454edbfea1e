"""Tries kernels on which some drivers abort the process, in a separate process.

`python -m dovetail_gpu_opencl.probes IDENTITY SOURCE` prints `right` when the device of that identity compiles and runs the
source: a kernel `probe` of four work items, which puts x * x + 1 in the place of 64 floats x.
"""

import subprocess
import sys
from contextlib import suppress

import numpy as np
import pyopencl as cl

from dovetail_gpu_opencl import interpreter
from dovetail_gpu_opencl.capabilities import identity_of

__all__ = ["runs_correctly"]

_SECONDS, _CPU_SECONDS = 60, 10
"""A probe that works takes half a second. A compiler that hangs also fills the memory: PoCL 3.0 from pip 180 MB a second."""


def runs_correctly(identity: str, source: str) -> bool:
    """Whether the device of this identity (`Capabilities.identity`) runs the source without a crash and correctly."""
    command = interpreter.command("-m", __name__, identity, source)
    if command is None:
        return False
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no process could be started, or it hangs in the compiler
        return False
    return done.returncode == 0 and done.stdout.strip().endswith(b"right")


def _limit_cpu_time() -> None:
    with suppress(ImportError, ValueError):  # on Windows; where the limit is lower
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))


def _run(identity: str, source: str) -> None:
    _limit_cpu_time()
    found = [d for p in cl.get_platforms() for d in p.get_devices() if identity_of(d) == identity]
    context = cl.Context(found[:1])
    queue, x = cl.CommandQueue(context), np.arange(64, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    kernel = cl.Kernel(cl.Program(context, source).build(), "probe")
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    result = np.empty_like(x)
    cl.enqueue_copy(queue, result, buffer)
    print("right" if np.array_equal(result, x * x + 1) else "wrong")


if __name__ == "__main__":
    _run(*sys.argv[1:])
