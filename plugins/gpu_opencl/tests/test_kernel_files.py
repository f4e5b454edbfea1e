"""Every file of cl/ compiles with the defaults that it defines itself: all of them, for one file takes milliseconds."""

import runpy
from importlib import resources
from pathlib import Path

import pytest

from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.source import load

emulated = runpy.run_path(str(Path(__file__).with_name("_matrix_units.py")))["emulated"]
pipelined = runpy.run_path(str(Path(__file__).with_name("_pipeline.py")))["emulated"]
FILES = sorted(p.name for p in (resources.files("dovetail_gpu_opencl") / "cl").iterdir())


@pytest.mark.exhaustive(0.15)  # each compiles a program
@pytest.mark.parametrize("file", FILES)
def test_each_file_compiles_alone(file: str, device: OpenCLDevice) -> None:
    source = load(file) if device.caps.ptx else pipelined(emulated(load(file)))
    device.programs.get(Launch(file, source, file.removesuffix(".cl"), (), (1,)), file)
