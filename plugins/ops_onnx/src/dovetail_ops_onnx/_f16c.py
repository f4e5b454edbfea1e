"""Conversion between float16 and float32 by the instructions of x86-64 for it (F16C), which NumPy's builds leave out.

They are called by the machine code below, because Python reaches them in no other way: one function reads 16 halves at a time,
the other 16 singles, and both the rest one by one. Intel's manual, volume 2, describes VCVTPH2PS and VCVTPS2PH. They round halves
to even, whatever the modes of the thread, and make signalling NaN quiet.
"""

import ctypes
from collections.abc import Callable
from functools import cache

from dovetail_ops_onnx._machine_code import loaded

__all__ = ["Function", "native"]

_WIDEN = bytes.fromhex(
    "4883ea10 721e"  # more: sub rdx, 16; jb rest
    "c4e27d1307 c4e27d134f10"  # vcvtph2ps ymm0, [rdi]; vcvtph2ps ymm1, [rdi + 16]
    "c5fc1106 c5fc114e20"  # vmovups [rsi], ymm0; vmovups [rsi + 32], ymm1
    "4883c720 4883c640 ebdc"  # add rdi, 32; add rsi, 64; jmp more
    "4883c210 741d"  # rest: add rdx, 16; jz end
    "0fb707 c5f96ec0 c4e27913c0 c5fa1106"  # one: movzx eax, word [rdi]; vmovd xmm0, eax; vcvtph2ps xmm0, xmm0; vmovss [rsi], xmm0
    "4883c702 4883c604 48ffca 75e3"  # add rdi, 2; add rsi, 4; dec rdx; jnz one
    "c5f877 c3"  # end: vzeroupper; ret
)
_NARROW = bytes.fromhex(
    "4883ea10 7220"  # more: sub rdx, 16; jb rest
    "c5fc1007 c5fc104f20"  # vmovups ymm0, [rdi]; vmovups ymm1, [rdi + 32]
    "c4e37d1d0600 c4e37d1d4e1000"  # vcvtps2ph [rsi], ymm0, 0; vcvtps2ph [rsi + 16], ymm1, 0
    "4883c740 4883c620 ebda"  # add rdi, 64; add rsi, 32; jmp more
    "4883c210 741e"  # rest: add rdx, 16; jz end
    "c5fa1007 c4e3791dc000 c5f97ec0 668906"  # one: vmovss xmm0, [rdi]; vcvtps2ph xmm0, xmm0, 0; vmovd eax, xmm0; mov [rsi], ax
    "4883c704 4883c602 48ffca 75e2"  # add rdi, 4; add rsi, 2; dec rdx; jnz one
    "c5f877 c3"  # end: vzeroupper; ret
)
"""Functions of the calling convention of System V: the address of the source in rdi, of the result in rsi, the count in rdx."""

Function = Callable[[int, int, int], None]


@cache
def native() -> tuple[Function, Function] | None:
    """Functions of the addresses of source and result and the count: from float16 to float32, and back.

    None on other processors and systems, and where the system forbids to make memory executable.
    """
    found = loaded((_WIDEN, _NARROW), "F16C")
    if found is None:
        return None
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return prototype(found[0]), prototype(found[1])
