"""Whether PoCL can link what it compiles. It calls `ld` with the libraries of GCC, and ends the process where that fails."""

import functools
import glob
import shutil

from dovetail_gpu_opencl.probes import runs_correctly

__all__ = ["HINT", "lacks"]

HINT = "install a C compiler: apt-get install gcc libc6-dev (Debian, Ubuntu), dnf install gcc (Fedora)"

_LIBGCC = "/usr/lib*/gcc/*/*/libgcc.a"
_PROBE = """
__kernel void probe(__global float *x) {
    __global float *mine = x + 16 * get_global_id(0);
    for (int i = 0; i < 16; ++i) mine[i] = mine[i] * mine[i] + 1.0f;
}
"""


def lacks(identity: str) -> str:
    """The part that the driver of this device needs and lacks; empty when it can link.

    Where the libraries are not in their usual place, it is tried, once in a process.
    """
    if shutil.which("ld") is None:
        return "calls the linker 'ld', which is not installed"
    return "" if next(glob.iglob(_LIBGCC), "") or _links(identity) else "links with the libraries of GCC, which are not installed"


@functools.cache
def _links(identity: str) -> bool:
    return runs_correctly(identity, _PROBE)
