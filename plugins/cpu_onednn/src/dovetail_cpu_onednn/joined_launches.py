"""Launches that follow each other as one call: each call of Python costs 0.25 us, a third of what a small product takes.

oneDNN has no function that executes several primitives, so the loop is machine code, as in `dovetail_ops_onnx._f16c`.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cache, partial
from struct import pack

from dovetail_cpu_onednn.binding import Launch
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.memory import placed
from dovetail_cpu_onednn.python_kernel import Call

__all__ = ["joined"]

_RUN = bytes.fromhex(
    "53 55 4154"  # push rbx; push rbp; push r12
    "4889fb 4889f5 4989d4"  # mov rbx, rdi; mov rbp, rsi; mov r12, rdx
    "488b3b 488b7308 488b5310 488b4b18"  # next: mov rdi, [rbx]; mov rsi, [rbx + 8]; mov rdx, [rbx + 16]; mov rcx, [rbx + 24]
    "41ffd4 85c0 7509"  # call r12; test eax, eax; jnz end
    "4883c320 48ffcd 75e1"  # add rbx, 32; dec rbp; jnz next
    "89c0 48c1e520 4809e8"  # end: mov eax, eax; shl rbp, 32; or rax, rbp
    "415c 5d 5b c3"  # pop r12; pop rbp; pop rbx; ret
)
"""Calls the function in rdx with each of the rsi rows of four arguments at rdi, by the calling convention of System V, until one
does not return 0. Returns that status, and above its 32 bits how many rows are left with its own."""

_ROW, _ARGUMENT = 32, 16
"""Bytes of a row: a primitive, a stream, the number of arguments and their address; and of an argument."""


@cache
def _native() -> tuple[Callable[..., int], Callable[..., int]] | None:
    """The machine code as a function that releases Python's lock, and as one that keeps it; None where it cannot run."""
    start = placed(_RUN)
    return None if start is None else (ctypes.CFUNCTYPE(ctypes.c_int64)(start), ctypes.PYFUNCTYPE(ctypes.c_int64)(start))


def joined(launches: Sequence[Launch], is_short: bool) -> Call | None:
    """One call of all launches, which have `packed` arguments, in turn; None without a function for it.

    `is_short`: other threads of Python wait meanwhile. The caller keeps the launches alive. The call returns 0, or the status of
    the launch that failed, and above its 32 bits how many launches did not succeed.
    """
    if (native := _native()) is None:
        return None
    packed = [launch.packed for launch in launches]
    memory = ctypes.create_string_buffer(_ROW * len(packed) + sum(map(len, packed)))
    address, rows = ctypes.addressof(memory) + _ROW * len(packed), list[int]()
    for launch, arguments in zip(launches, packed, strict=True):
        primitive, stream = launch.kept[:2]
        rows += (primitive.pointer.value, stream.pointer.value, len(arguments) // _ARGUMENT, address)
        address += len(arguments)
    memory.raw = b"".join((pack(f"{len(rows)}Q", *rows), *packed))
    given = [ctypes.c_void_p.from_param(one) for one in (memory, len(packed), library().address("dnnl_primitive_execute"))]
    return partial(native[is_short], *given)
