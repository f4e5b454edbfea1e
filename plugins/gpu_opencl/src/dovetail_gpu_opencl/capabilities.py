"""The capabilities of a device, queried once. The only file that reads names of platforms and vendors."""

import ctypes
import hashlib
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from itertools import islice
from typing import Any

import pyopencl as cl

from dovetail.dataclass import dataclass

__all__ = ["Capabilities"]

_POCL = "Portable Computing Language"

_POCL_VERSION = re.compile(r"pocl (\d+)\.(\d+)", re.IGNORECASE)

_MANY_REGISTERS = re.compile(
    r"avx512|aarch64|arm64|cannonlake|icelake|tigerlake|rocketlake|rapids|cascadelake|cooperlake|znver[45]"
)
"""Targets of compilers that have 32 vector registers; others are taken to have 16."""

_ARCH_PRCTL, _PERMIT, _TILES = 158, 0x1023, 18
"""The system call of Linux on x86-64 that asks for registers, and those of tiles: `ARCH_REQ_XCOMP_PERM`, `XTILEDATA`."""

_ENDED_BY_ASSEMBLY, _ASSEMBLES_AGAIN = (4, 0), (7, 0)
"""PoCL's versions that take inline assembly for an allocation of local memory, which ends the process (mended in its commit
5fcd68e60), and the first without this fault."""

WIDEST_VECTOR = 8
"""Floats. PoCL 3.0 from pip (LLVM 14) aborts the process on vectors of 512 bits on AVX-512 machines: see wide_vectors.py."""


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The facts that kernels choose by. Sizes in bytes.

    `kind` is CPU, GPU or ACCELERATOR; `identity` a digest of device, driver and platform versions, under which binaries are kept;
    `family` the name of the table of tuned parameters that may come with this package; `image_size` the greatest width, height
    and number of slices of an image, zeros where there are none; `needs_linker` says that the driver calls the program `ld` for
    every build; `parses_header` that it puts Clang's header of all built-in functions before every source; `ptx` that it takes
    inline PTX. `matrix` is what the user allowed factors to be rounded to (tf32, bf16 or f16) for matrix units that were tried
    and work; empty without them. `pipeline` says that products of float16 that copy asynchronously (tiles_pipelined.cl) were
    tried, too, and work; `bfloat_pipeline` says so of bfloat16, and `float_pipeline` of floats, whose products are exact, with
    tf32 of rounded factors; it is False with bf16 and f16. `exact_division` says that the driver can round float quotients
    correctly where a program asks for it. `vector_registers` is how many vectors a CPU holds, as far as is known, and
    `native_lanes` how many floats one holds; `vector_width` is at most 8, which every driver survives. `multiplies_fours` is for
    how many sums at once, 8 or 16, kernels may name the instruction of x86 CPUs that multiplies and adds four pairs of bytes; 0
    without it. `multiplies_tiles` says that they may also multiply tiles of bytes in registers (AMX). `unified_memory` says that
    kernels can read the memory of the host. `compute_capability` is that of NVIDIA's GPUs, (0, 0) of others.
    """

    kind: str
    identity: str
    family: str
    compute_units: int
    max_work_group_size: int
    max_work_item_sizes: tuple[int, ...]
    local_memory: int
    max_allocation: int
    image_size: tuple[int, int, int]
    vector_width: int
    fp16: bool
    fp64: bool
    out_of_order: bool
    needs_linker: bool
    parses_header: bool = False
    ptx: bool = False
    matrix: str = ""
    pipeline: bool = False
    bfloat_pipeline: bool = False
    float_pipeline: bool = False
    exact_division: bool = False
    vector_registers: int = 16
    unified_memory: bool = False
    native_lanes: int = 0
    multiplies_fours: int = 0
    multiplies_tiles: bool = False
    compute_capability: tuple[int, int] = (0, 0)
    extensions: frozenset[str] = frozenset()

    @property
    def exact_options(self) -> tuple[str, ...]:
        """Build options for kernels whose float quotients must be rounded right; GPUs divide faster and less exactly."""
        return ("-cl-fp32-correctly-rounded-divide-sqrt",) if self.exact_division else ()

    def lanes(self, c_type: str) -> int:
        """How many floats or doubles kernels for CPUs take as one vector: 2, 4 or 8."""
        return max(2, self.vector_width // (2 if c_type == "double" else 1))

    @staticmethod
    def query(device: Any) -> "Capabilities":
        """The capabilities of a `pyopencl.Device`; creates no context."""
        extensions, fours = device.extensions.split(), multiplies_fours(device)
        return Capabilities(
            kind=kind_of(device),
            identity=identity_of(device),
            family=family_of(device, compute_capability_of(device, extensions)),
            compute_units=device.max_compute_units,
            max_work_group_size=device.max_work_group_size,
            max_work_item_sizes=tuple(device.max_work_item_sizes),
            local_memory=device.local_mem_size,
            max_allocation=device.max_mem_alloc_size,
            image_size=image_size(device),
            vector_width=min(WIDEST_VECTOR, _power_of_two(device.native_vector_width_float)),
            fp16="cl_khr_fp16" in extensions,
            fp64="cl_khr_fp64" in extensions,
            out_of_order=bool(device.queue_properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE),
            needs_linker=needs_linker(device),
            parses_header=parses_header(device),
            ptx="cl_nv_compiler_options" in extensions,
            vector_registers=32 if _MANY_REGISTERS.search(target_of(device)) else 16,
            unified_memory=bool(device.host_unified_memory),
            native_lanes=device.native_vector_width_float,
            multiplies_fours=fours,
            multiplies_tiles=fours > 0 and multiplies_tiles(),
            compute_capability=compute_capability_of(device, extensions),
            extensions=frozenset(extensions),
            exact_division=bool(device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT),
        )


def compute_capability_of(device: Any, extensions: Sequence[str]) -> tuple[int, int]:
    """That of a GPU of NVIDIA, (0, 0) of others."""
    if "cl_nv_device_attribute_query" not in extensions:
        return (0, 0)
    return (device.compute_capability_major_nv, device.compute_capability_minor_nv)


def identity_of(device: Any) -> str:
    """A digest of device, driver and platform versions."""
    platform = device.platform
    versions = (platform.name, platform.version, device.name, device.version, device.driver_version)
    return hashlib.sha256("\n".join(versions).encode()).hexdigest()


def family_of(device: Any, compute_capability: tuple[int, int]) -> str:
    """The architecture where tables depend on it alone, else the name of the device; small letters, digits and dashes.

    For CPUs of PoCL the instruction set counts, which is in the target, and not the machine, which is in the name. Of NVIDIA's
    GPUs compute capability and number of compute units count: an H100 has those of an H200, and other memory.
    """
    name = device.name
    if device.platform.name == _POCL:
        name = f"pocl-{target_of(device)}"
    elif compute_capability > (0, 0):
        name = "nvidia-sm{}{}-{}".format(*compute_capability, device.max_compute_units)
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def target_of(device: Any) -> str:
    """Architecture and CPU that PoCL compiles for, such as `x86_64-skylake-avx512`; empty where that is not known.

    PoCL writes them into the device's version: `HSTR: pthread-x86_64-pc-linux-gnu-skylake-avx512`.
    """
    found = re.search(r"HSTR: [a-z]+-([a-z0-9_]+)-.*?-(?:gnu[a-z0-9]*|musl|darwin[0-9.]*)-(.+)", device.version)
    return f"{found[1]}-{found[2].strip()}" if found and device.platform.name == _POCL else ""


def refused_cpu(device: Any) -> str:
    """The driver, such as `PoCL 3.0`, where its compiler does not know this machine's CPU and refuses every build; else empty.

    PoCL up to 3.0 passes `generic` to its compiler for an x86 CPU that its LLVM does not know, and no x86 CPU has that name.
    Its device is then called `pthread-<model>` instead of `pthread-<LLVM's name>-<model>`. Later versions pass `x86-64`.
    """
    version = _pocl_version(device)
    is_unknown = (0, 0) < version <= (3, 0) and target_of(device) == "x86_64-generic"
    return "PoCL {}.{}".format(*version) if is_unknown else ""


def multiplies_fours(device: Any) -> int:
    """The ints of a vector, 8 or 16, for which PoCL compiles and an x86 CPU has VPDPBUSD (AVX-512 VNNI); 0 without it.

    As NumPy knows it, which NPY_DISABLE_CPU_FEATURES can change: not every compiler knows the CPU, so that kernels have it in
    inline assembly. Vectors of 512 bits may end the process in PoCL 3.0: see wide_vectors.py.
    """
    lanes, version = device.native_vector_width_float, _pocl_version(device)
    if not target_of(device).startswith("x86_64-") or lanes < 8 or _ENDED_BY_ASSEMBLY <= version < _ASSEMBLES_AGAIN:
        return 0
    for name in ("numpy._core._multiarray_umath", "numpy.core._multiarray_umath"):  # of NumPy 2, of NumPy 1
        try:
            features: Mapping[str, bool] = import_module(name).__cpu_features__
        except (ImportError, AttributeError):
            continue
        if all(features.get(wanted, False) for wanted in ("AVX512VL", "AVX512VNNI")):
            return 16 if lanes >= 16 and version > (3, 0) else 8
    return 0


def multiplies_tiles() -> bool:
    """Whether this CPU multiplies tiles of bytes (AMX) and Linux lets this process and those that it starts do so.

    Linux asks for that once, because a thread's registers then take 8 KiB more, also where signals are handled.
    """
    try:
        with open("/proc/cpuinfo", encoding="ascii") as file:
            known = any(line.startswith("flags") and "amx_int8" in line.split() for line in islice(file, 64))
        return known and ctypes.CDLL(None).syscall(_ARCH_PRCTL, _PERMIT, _TILES) == 0
    except (OSError, AttributeError, UnicodeDecodeError):
        return False


def _pocl_version(device: Any) -> tuple[int, int]:
    """(0, 0) for other platforms."""
    found = _POCL_VERSION.search(device.platform.version) if device.platform.name == _POCL else None
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def _power_of_two(number: int) -> int:
    return 1 << (max(1, number).bit_length() - 1)


def image_size(device: Any) -> tuple[int, int, int]:
    """Greatest width, height and slices; zeros without images."""
    if not device.image_support:
        return (0, 0, 0)
    return (device.image2d_max_width, device.image2d_max_height, device.image_max_array_size)


def kind_of(device: Any) -> str:
    """GPU, CPU or ACCELERATOR."""
    if device.type & cl.device_type.GPU:
        return "GPU"
    return "CPU" if device.type & cl.device_type.CPU else "ACCELERATOR"


def needs_linker(device: Any) -> bool:
    """True when the driver calls `ld` to build a kernel: PoCL on CPUs."""
    return bool(device.platform.name == _POCL and device.type & cl.device_type.CPU)


def parses_header(device: Any) -> bool:
    """True for PoCL 3 on CPUs, whose compilers (LLVM 14 and 15) were tried without the header. It has no halves there."""
    return needs_linker(device) and _pocl_version(device)[0] == 3 and "cl_khr_fp16" not in device.extensions.split()
