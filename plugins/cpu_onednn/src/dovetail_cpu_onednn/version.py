"""The version of a shared library of oneDNN, and the runtime of its CPU engine, known before anything is made with it."""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_uint
from typing import NamedTuple

__all__ = ["Version", "version_of"]

_OPENCL, _SYCL = 0x100, 0x200
"""Bits of the runtime: memory, primitives and streams of such an engine belong to queues."""


class Version(NamedTuple):
    """`queues` names the runtime where the CPU engine computes in queues, and not in threads of the caller; empty elsewhere."""

    number: tuple[int, int, int]
    queues: str


class _Version(ctypes.Structure):
    _fields_ = (
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("runtime", c_uint),
        ("gpu_runtime", c_uint),
    )


def version_of(cdll: ctypes.CDLL) -> Version:
    """The version. Raises `AttributeError` for a library that is not oneDNN."""
    function = cdll.dnnl_version
    function.restype = POINTER(_Version)
    found = function().contents
    queues = "SYCL" if found.runtime & _SYCL else "OpenCL" if found.runtime & _OPENCL else ""
    return Version((found.major, found.minor, found.patch), queues)
