"""A graph compiled for an OpenCL device, as the core sees it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from dovetail.device import Executable, ExecutableRequest, NodeReport
from dovetail.errors import UsageError
from dovetail.locks import cached_property
from dovetail_gpu_opencl.compiled import CompiledGraph
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.lifetime import IN_USE
from dovetail_gpu_opencl.profiled import ProfiledRequest
from dovetail_gpu_opencl.request import DebugRequest, EventRequest, InOrderRequest

__all__ = ["CLExecutable"]


class CLExecutable(CompiledGraph, Executable):
    """Makes requests, reports and programs that reproduce a node."""

    make_reports: Callable[[], Sequence[NodeReport]]
    """Called when the reports are first read."""
    _closed = False

    @cached_property
    def reports(self) -> tuple[NodeReport, ...]:  # type: ignore[override]  # made when it is read
        """The kernel of each node, and why others were not taken."""
        return tuple(self.make_reports())

    def create_request(self) -> ExecutableRequest:
        """A new request with separate queues, buffers and kernel objects."""
        if self._closed:
            raise UsageError("this executable was closed", hint="compile the graph again")
        with IN_USE, translated("creating a request"):
            if self.options.DEBUG_BUFFERS:
                return DebugRequest(self)
            kind = EventRequest if self.out_of_order else InOrderRequest
            return kind(self, self._create_profiled)

    def reproduce(self, node: str, inputs: Sequence[NDArray[Any]], folder: Path) -> Path:
        """Write `reproduce.py`, which needs only numpy and pyopencl, with sources and data beside it."""
        from dovetail_gpu_opencl.reproduce import write_program

        return write_program(self, node, inputs, folder)

    def close(self) -> None:
        """Drop the constants; they are freed when the last request is gone, whose kernels read them."""
        self.drop_constants()
        self._closed = True

    def _create_profiled(self) -> ExecutableRequest:
        with IN_USE, translated("creating a request"):
            return ProfiledRequest(self)
