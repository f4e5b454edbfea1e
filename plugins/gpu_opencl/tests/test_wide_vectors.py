"""Vectors of 512 bits: used where the driver survives them, refused where it does not, found out without ending this process."""

import dataclasses
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from dovetail.cache import FileCache, cache_key
from dovetail.device import DeviceInfo, Refusal, TensorType, TypedNode
from dovetail.op import OpenCLKernel, Operator
from dovetail_gpu_opencl import discovery, matrix_units, probes, wide_vectors
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.probes import runs_correctly
from dovetail_gpu_opencl.wide_vectors import refuse_wide_vectors, survives

X = np.arange(64, dtype=np.float32)


class Wide(Operator):
    """X + 1, sixteen at a time."""

    domain = "test.wide"
    inputs = ("X",)
    outputs = ("Y",)
    kernels: ClassVar = (
        OpenCLKernel(
            source="""
            __kernel void wide(__global const float* x, __global float* y) {
              const float16 v = vload16(get_global_id(0), x);
              vstore16(v + 1.0f, get_global_id(0), y);
            }""",
            entry="wide",
            global_size=lambda inputs, outputs: (outputs[0].size // 16,),
        ),
    )

    def infer(self, X: TensorType) -> TensorType:
        return X


def test_a_kernel_runs_or_is_refused(device: OpenCLDevice, bench: Any) -> None:
    """On each driver of this machine the process lives on, whichever it is."""
    graph, feeds = bench.single(Wide(), [X])
    answer = device.supports(TypedNode.of(graph.nodes[0], graph))
    if survives(device.caps.identity):
        np.testing.assert_array_equal(bench.run(device, graph, feeds)[0], X + 1)
    else:
        assert isinstance(answer, Refusal)
        assert "the source has float16, and this driver ends the process at vectors of 512 bits" in str(answer)


@pytest.mark.parametrize(
    "source",
    ["float16 v;", "int16 v;", "uint16 v;", "double8 v;", "long8 v;", "vload16(0, x)", "#define V float16\n", "ulong16 v;"],
)
def test_what_is_refused(source: str, device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_vectors, "survives", lambda identity: False)
    caps = dataclasses.replace(device.caps, needs_linker=True)
    assert isinstance(refuse_wide_vectors(source, caps), Refusal)
    assert refuse_wide_vectors(source, dataclasses.replace(caps, needs_linker=False)) is None


@pytest.mark.parametrize(
    "source", ["float8 v;", "half16 v;", "char16 v;", "short16 v;", "float4 float16x;", "// float16\n/* int16\n */ int v;"]
)
def test_what_is_not_asked_for(source: str, device: OpenCLDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(identity: str) -> bool:
        raise AssertionError("a process was started")

    monkeypatch.setattr(wide_vectors, "survives", never)
    assert refuse_wide_vectors(source, dataclasses.replace(device.caps, needs_linker=True)) is None


def test_the_answer_is_kept(info: DeviceInfo, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process and in the cache; a probe that ends its process, writes nothing or cannot be started says no."""
    asked: list[str] = []

    def ends(identity: str, source: str) -> bool:
        assert "float16" in source
        asked.append(identity)
        return False

    monkeypatch.setattr(wide_vectors, "runs_correctly", ends)
    for _ in range(2):
        survives.cache_clear()
        assert not survives("some driver")
        assert not survives("some driver")
    assert asked == ["some driver"]
    FileCache("opencl-probes").put(cache_key("another", wide_vectors._PROBE), b"1")
    assert survives("another")
    survives.cache_clear()


def test_a_probe_that_dies_says_no(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not runs_correctly("no device has this identity", "")
    monkeypatch.setattr("sys.executable", "/no/such/python")
    assert not runs_correctly("whichever", "")


def test_a_frozen_program_tries_nothing(kept: Path, info: DeviceInfo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its executable is the program itself: it has what another program found out, and keeps nothing."""
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    monkeypatch.setattr(subprocess, "run", None)
    caps = Capabilities.query(discovery.find_device(info.name))
    identity = "a device of the test"
    assert not probes.runs_correctly(identity, "")
    assert not wide_vectors.survives.__wrapped__(identity)
    assert "a frozen program" in matrix_units._known(caps, info.name, "f16")
    discovery._asking_ends_a_process.cache_clear()
    assert discovery._asking_ends_a_process()
    discovery._asking_ends_a_process.cache_clear()
    monkeypatch.delattr(sys, "frozen")
    monkeypatch.setattr(wide_vectors, "runs_correctly", lambda *_: True)
    assert wide_vectors.survives.__wrapped__(identity)


def test_a_probe_that_computes_for_ever_ends() -> None:
    """After a limit of CPU time, so that a busy machine does not decide it."""
    code = "from dovetail_gpu_opencl import probes; probes._CPU_SECONDS = 1; probes._limit_cpu_time()\nwhile True: pass"
    done = subprocess.run([sys.executable, "-P", "-c", code], timeout=60, check=False)
    assert done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)


@pytest.mark.parametrize("probe", [lambda: runs_correctly("no device", ""), lambda: matrix_units._tried("OPENCL.99", "f16")])
def test_a_probe_imports_nothing_from_the_working_folder(probe: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("open('imported', 'w')\n")
    monkeypatch.chdir(tmp_path)
    probe()
    assert not (tmp_path / "imported").exists()
