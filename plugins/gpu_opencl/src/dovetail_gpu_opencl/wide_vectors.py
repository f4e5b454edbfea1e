"""Vectors of 512 bits, on which some drivers abort the process: tried in a separate process, once for each driver."""

import functools
import re

from dovetail.cache import FileCache, cache_key
from dovetail.device import Reason, Refusal
from dovetail_gpu_opencl import interpreter
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.probes import runs_correctly

__all__ = ["refuse_wide_vectors", "survives"]

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_WIDE = re.compile(r"\b(?:(?:float|u?int)16|(?:double|u?long)(?:8|16)|v(?:load|store)16)\b")
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
        known = b"1" if runs_correctly(identity, _PROBE) else b"0"
        if interpreter.command() is not None:  # else nothing was tried
            cache.put(key, known)
    return known == b"1"
