"""Vectors of 512 bits, at which some drivers end the process: asked in a process of its own, once for each driver."""

import functools
import re
import subprocess
import sys

import numpy as np
import pyopencl as cl

from dovetail.cache import FileCache, cache_key
from dovetail.device import Reason, Refusal
from dovetail_gpu_opencl.capabilities import Capabilities

__all__ = ["refuse_wide_vectors", "survives"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WIDE = re.compile(r"\b(?:(?:float|u?int)16|(?:double|u?long)(?:8|16)|v(?:load|store)16)\b")
_SECONDS = 60
_PROBE = """
__kernel void probe(__global float *x) {
    float16 v = vload16(get_global_id(0), x);
    vstore16(v * v + 1.0f, get_global_id(0), x);
}
"""


def refuse_wide_vectors(source: str, caps: Capabilities) -> Refusal | None:
    """Why a kernel with this source would end the process, None when it does not.

    The device is asked only when the source has such vectors outside its comments, and only a driver that compiles for this
    machine's CPU: PoCL 3.0 from pip (LLVM 14) aborts on CPUs with AVX-512, or hangs.
    """
    found = _WIDE.search(_COMMENT.sub(" ", source)) if caps.needs_linker else None
    if found is None or survives(caps.identity):
        return None
    return Refusal(Reason.CAPABILITY, f"the source has {found[0]}, and this driver ends the process at vectors of 512 bits")


@functools.cache
def survives(identity: str) -> bool:
    """Whether the device of this identity (`Capabilities.identity`) compiles and runs such vectors; kept in the cache."""
    cache, key = FileCache("opencl-probes"), cache_key(identity, _PROBE)
    known = cache.get(key)
    if known is None:
        known = b"1" if _outlives(identity) else b"0"
        cache.put(key, known)
    return known == b"1"


def _outlives(identity: str) -> bool:
    command = [sys.executable, "-P", "-c", f"from {__name__} import run_probe; run_probe({identity!r})"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):  # no process could be started, or it hangs in the compiler
        return False
    return done.returncode == 0 and done.stdout.strip().endswith(b"right")


def run_probe(identity: str) -> None:
    """In the process that may end: print `right` when the device computes right."""
    found = [d for p in cl.get_platforms() for d in p.get_devices() if Capabilities.query(d).identity == identity]
    context = cl.Context(found[:1])
    queue, x = cl.CommandQueue(context), np.arange(64, dtype=np.float32)
    buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR, hostbuf=x)
    kernel = cl.Kernel(cl.Program(context, _PROBE).build(), "probe")
    kernel.set_args(buffer)
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    result = np.empty_like(x)
    cl.enqueue_copy(queue, result, buffer)
    print("right" if np.array_equal(result, x * x + 1) else "wrong")
