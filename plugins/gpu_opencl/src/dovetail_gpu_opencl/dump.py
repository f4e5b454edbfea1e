"""`DUMP_KERNELS`: the source of every program that a compilation uses, in a folder."""

import contextlib
import hashlib
import re
from pathlib import Path
from typing import Any

import pyopencl as cl

from dovetail.errors import CompileError, UsageError
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.program import build_options

__all__ = ["KernelDump"]


class KernelDump:
    """Writes `program_<operator>_<hash>.cl` for each distinct source with its options; the build log follows as a comment."""

    def __init__(self, folder: str, device: Any) -> None:
        self._folder, self._device = Path(folder), device
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise self._refused(error) from error

    def built(self, op_type: str, launch: Launch, program: Any) -> None:
        """Write a program that was built. Raises `UsageError` when the folder cannot be written."""
        log = ""
        with contextlib.suppress(cl.Error):
            log = program.get_build_info(self._device, cl.program_build_info.LOG)
        self._write(op_type, launch, log)

    def failed(self, op_type: str, launch: Launch, error: CompileError) -> None:
        """Write a source that does not compile."""
        self._write(op_type, launch, error.message.partition("\nsource:\n")[0])

    def _write(self, op_type: str, launch: Launch, log: str) -> None:
        options = " ".join(build_options(launch))
        digest = hashlib.sha256(f"{options}\0{launch.source}".encode()).hexdigest()[:12]
        name = f"program_{re.sub(r'[^0-9A-Za-z]', '_', op_type)}_{digest}.cl"
        said = f"Entry: {launch.entry}\nOptions: {options}\nBuild Log:\n{log.strip()}".replace("*/", "* /")
        try:
            (self._folder / name).write_text(f"{launch.source.rstrip()}\n/*\n{said}\n*/\n", encoding="utf-8")
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(f"DUMP_KERNELS: {self._folder} cannot be written: {error.strerror}", hint="give the path of a folder")
