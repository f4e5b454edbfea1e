"""Finding devices: order and names, and what is said where there is no platform, no linker or no pyopencl."""

import subprocess
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from dovetail.device import DeviceInfo, Unavailable
from dovetail.errors import UsageError
from dovetail_gpu_opencl import discovery, dovetail_device_info, dovetail_device_open
from dovetail_gpu_opencl.capabilities import WIDEST_VECTOR, Capabilities


def test_names_are_numbered_and_unique(infos: Sequence[DeviceInfo]) -> None:
    assert [info.name for info in infos] == [f"OPENCL.{i}" for i in range(len(infos))]
    assert all(info.type == "OPENCL" and info.full_name and info.details["driver"] for info in infos)


def _fake(name: str, kind: int, platform: str = "Acme") -> SimpleNamespace:
    about = SimpleNamespace(name=platform, version="1")
    return SimpleNamespace(
        name=name, type=kind, platform=about, driver_version="1", max_compute_units=1, global_mem_size=1, version="1"
    )


def _platforms(monkeypatch: pytest.MonkeyPatch, *devices: list[Any]) -> None:
    found = [SimpleNamespace(get_devices=lambda own=own: own) for own in devices]
    monkeypatch.setattr(cl, "get_platforms", lambda: found)


def test_gpus_come_before_cpus_before_others(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = cl.device_type
    _platforms(
        monkeypatch,
        [_fake("cpu", kinds.CPU), _fake("first gpu", kinds.GPU)],
        [_fake("accelerator", kinds.ACCELERATOR), _fake("second gpu", kinds.GPU)],
    )
    found = dovetail_device_info({})
    assert not isinstance(found, Unavailable)
    assert [i.full_name for i in found] == ["first gpu", "second gpu", "cpu", "accelerator"]
    assert [i.kind for i in found] == ["GPU", "GPU", "CPU", "ACCELERATOR"]
    assert found[0].priority > found[3].priority > found[2].priority


def test_a_platform_that_fails_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[Any]:
        raise cl.LogicError("no devices")

    good = SimpleNamespace(get_devices=lambda: [_fake("gpu", cl.device_type.GPU)])
    monkeypatch.setattr(cl, "get_platforms", lambda: [SimpleNamespace(get_devices=fail), good])
    found = dovetail_device_info({})
    assert not isinstance(found, Unavailable)
    assert [i.name for i in found] == ["OPENCL.0"]


def test_pocl_without_a_linker_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pocl = _fake("cpu", cl.device_type.CPU, "Portable Computing Language")
    monkeypatch.setattr(discovery.shutil, "which", lambda name: None)
    _platforms(monkeypatch, [pocl])
    alone = dovetail_device_info({})
    assert isinstance(alone, Unavailable)
    assert "'ld'" in alone.reason
    assert "binutils" in alone.hint
    _platforms(monkeypatch, [pocl, _fake("other", cl.device_type.CPU)])
    found = dovetail_device_info({})
    assert not isinstance(found, Unavailable)
    assert [i.name for i in found] == ["OPENCL.1"]


def test_no_platform() -> None:
    """In a process of its own: the loader looks for drivers once, pip's PoCL in the folder that pyopencl names."""
    script = (
        "import os, tempfile; empty = tempfile.mkdtemp(); os.environ['OCL_ICD_VENDORS'] = empty\n"
        "import pyopencl; os.environ['PYOPENCL_HOME'] = empty\n"
        "from dovetail_gpu_opencl import dovetail_device_info; print(dovetail_device_info({}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Unavailable(reason='no OpenCL platform")
    assert 'pip install "dovetail-gpu-opencl[pocl]"' in done.stdout


def test_pyopencl_that_cannot_be_imported() -> None:
    script = (
        "import sys; sys.modules['pyopencl'] = None\n"
        "from dovetail_gpu_opencl import dovetail_device_info; print(dovetail_device_info({}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Unavailable(reason='pyopencl cannot be imported")


def test_capabilities(info: DeviceInfo) -> None:
    caps = Capabilities.query(discovery.find_device(info.name))
    assert caps.kind == info.kind
    assert caps.max_work_group_size >= 1
    assert caps.max_allocation > 1 << 20
    assert 1 <= caps.vector_width <= WIDEST_VECTOR


def test_unknown_options_are_named(info: DeviceInfo) -> None:
    with pytest.raises(UsageError, match=r"OPENCL has no option 'QEUE'.*\n.*Did you mean 'QUEUE'"):
        dovetail_device_open(info, {"QEUE": "IN_ORDER"})
    with pytest.raises(UsageError, match="QUEUE is 'SIDEWAYS'; accepted: IN_ORDER, OUT_OF_ORDER, MULTI"):
        dovetail_device_open(info, {"QUEUE": "SIDEWAYS"})
