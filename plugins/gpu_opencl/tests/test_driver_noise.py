"""PoCL prints how many warnings a build has; kernels of this package are built without."""

import uuid

import pytest

from dovetail_gpu_opencl import program
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.launch import Launch


def test_warnings_are_not_printed(device: OpenCLDevice, capfd: pytest.CaptureFixture[str]) -> None:
    """A kernel that clang warns of, and that PoCL finds in no cache: a constant that does not fit its type."""
    source = f"__kernel void noisy(__global int *x) {{ const char c = 3000; x[0] = c; }} // {uuid.uuid4()}"
    device.programs.get(Launch("noisy.cl", source, "noisy", (), (1,)), "node")
    captured = capfd.readouterr()
    assert captured.err == captured.out == ""


def test_kernels_of_users_keep_their_warnings() -> None:
    ours = Launch("own.cl", "", "own", (), (1,))
    theirs = Launch("user.cl", "", "user", (), (1,), None, (program.ARGUMENT_INFO,))
    assert "-w" in program.build_options(ours)
    assert "-w" not in program.build_options(theirs)
