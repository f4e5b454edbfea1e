"""Finding devices: order and names, and the errors without a platform, a linker or pyopencl."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from dovetail.device import DeviceInfo, Unavailable
from dovetail.errors import UsageError
from dovetail_gpu_opencl import capabilities, discovery, dovetail_device_info, dovetail_device_open, linker, probes
from dovetail_gpu_opencl.capabilities import WIDEST_VECTOR, Capabilities, identity_of


def test_names_are_numbered_in_order(infos: Sequence[DeviceInfo]) -> None:
    numbers = [int(info.name.removeprefix("OPENCL.")) for info in infos]
    assert numbers == sorted(set(numbers))
    assert all(info.type == "OPENCL" and info.full_name and info.details["driver"] for info in infos)


def _fake(name: str, kind: int, platform: str = "Acme", platform_version: str = "1", version: str = "1") -> SimpleNamespace:
    about = SimpleNamespace(name=platform, version=platform_version)
    return SimpleNamespace(
        name=name, type=kind, platform=about, driver_version="1", max_compute_units=1, global_mem_size=1, version=version
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


POCL = _fake("cpu", cl.device_type.CPU, "Portable Computing Language")


@pytest.mark.parametrize(("found", "said"), [(None, "calls the linker 'ld'"), ("/bin/ld", "links with the libraries of GCC")])
def test_pocl_that_cannot_link_is_left_out(monkeypatch: pytest.MonkeyPatch, found: str | None, said: str) -> None:
    """The device has no such identity, so that what is tried fails, as it does where the libraries are missing."""
    monkeypatch.setattr(linker.shutil, "which", lambda name: found)
    monkeypatch.setattr(linker.glob, "iglob", lambda pattern: iter([]))
    _platforms(monkeypatch, [POCL])
    alone = dovetail_device_info({})
    assert isinstance(alone, Unavailable)
    assert said in alone.reason
    assert "gcc libc6-dev" in alone.hint
    _platforms(monkeypatch, [POCL, _fake("other", cl.device_type.CPU)])
    others = dovetail_device_info({})
    assert not isinstance(others, Unavailable)
    assert [i.name for i in others] == ["OPENCL.1"]


def test_pocl_is_believed_where_the_libraries_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linker.shutil, "which", lambda name: "/bin/ld")
    monkeypatch.setattr(linker.glob, "iglob", lambda pattern: iter(["/usr/lib/gcc/x86_64-linux-gnu/12/libgcc.a"]))
    monkeypatch.setattr(linker, "runs_correctly", lambda *_: pytest.fail("a process was started"))
    _platforms(monkeypatch, [POCL])
    assert not isinstance(dovetail_device_info({}), Unavailable)


def _pocl(version: str, target: str, name: str = "pthread-AMD EPYC") -> SimpleNamespace:
    return _fake(name, cl.device_type.CPU, POCL.platform.name, f"OpenCL 3.0 {version}  Linux", f"OpenCL 3.0 PoCL HSTR: {target}")


UNKNOWN = "pthread-x86_64-unknown-linux-gnu-generic"


@pytest.fixture
def linked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with the libraries that PoCL links with."""
    monkeypatch.setattr(linker, "lacks", lambda identity: "")


@pytest.mark.parametrize("version", ["PoCL 3.0-rc2", "PoCL 3.0", "pocl 1.8"])
@pytest.mark.usefixtures("linked")
def test_a_driver_that_is_older_than_the_cpu_is_unavailable(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(cl, "Context", lambda *_: pytest.fail("a context was created"))
    _platforms(monkeypatch, [_pocl(version, UNKNOWN)])
    found = dovetail_device_info({})
    assert isinstance(found, Unavailable)
    assert found.reason.startswith(f"the driver of pthread-AMD EPYC, PoCL {version[5:8]}, is older than this CPU")
    assert "pocl-opencl-icd" in found.hint


@pytest.mark.parametrize(
    ("version", "lanes", "fours"),
    [
        ("PoCL 3.0", 16, 8),
        ("PoCL 3.1+debian", 16, 16),
        ("PoCL 3.1+debian", 8, 8),
        ("PoCL 4.0", 16, 0),
        ("PoCL 5.0", 8, 0),
        ("PoCL 6.0+debian", 16, 0),
        ("PoCL 7.0", 16, 16),
        ("PoCL 7.1", 8, 8),
    ],
)
def test_pocl_that_assembly_ends_gets_none(monkeypatch: pytest.MonkeyPatch, version: str, lanes: int, fours: int) -> None:
    """PoCL 4.0 to 6.0 end the process that builds a kernel with inline assembly, whatever it says."""
    device = _pocl(version, "cpu-x86_64-pc-linux-gnu-skylake-avx512")
    device.native_vector_width_float = lanes
    features = {"AVX512VL": True, "AVX512VNNI": True}
    monkeypatch.setattr(capabilities, "import_module", lambda name: SimpleNamespace(__cpu_features__=features))
    assert capabilities.multiplies_fours(device) == fours


@pytest.mark.usefixtures("linked")
def test_a_driver_that_is_older_than_the_cpu_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    good = _pocl("PoCL 3.1+debian", "pthread-x86_64-pc-linux-gnu-skylake-avx512", "pthread-skylake-avx512-AMD EPYC")
    _platforms(monkeypatch, [_pocl("PoCL 3.0", UNKNOWN)], [good])
    discovery._log_once.cache_clear()
    with caplog.at_level("INFO", logger="dovetail.opencl"):
        for _ in range(2):
            found = dovetail_device_info({})
            assert not isinstance(found, Unavailable)
            assert [(i.name, i.full_name) for i in found] == [("OPENCL.1", good.name)]
    (message,) = caplog.messages
    assert message.startswith("OPENCL.0 is left out: the driver of pthread-AMD EPYC, PoCL 3.0")
    assert "pocl-opencl-icd" in message


@pytest.mark.parametrize(
    ("version", "target"),
    [
        ("PoCL 3.1", UNKNOWN),
        ("PoCL 5.0", UNKNOWN),
        ("PoCL 3.0", "pthread-x86_64-pc-linux-gnu-znver3"),
        ("PoCL 3.0", "pthread-aarch64-unknown-linux-gnu-generic"),
        ("Acme 3.0", UNKNOWN),
    ],
)
@pytest.mark.usefixtures("linked")
def test_drivers_that_can_compile_for_the_cpu_are_listed(monkeypatch: pytest.MonkeyPatch, version: str, target: str) -> None:
    """LLVM knows the CPU `generic` for ARM, and later versions of PoCL name another one for x86."""
    _platforms(monkeypatch, [_pocl(version, target)])
    found = dovetail_device_info({})
    assert not isinstance(found, Unavailable)
    assert [i.name for i in found] == ["OPENCL.0"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /sys")
def test_a_driver_that_ends_the_process_that_asks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without /sys PoCL does: asked in another process first, which lives on here and dies there."""
    monkeypatch.setattr(discovery, "_CPUS", "/sys/no/such/folder")
    discovery._asking_ends_a_process.cache_clear()
    assert not isinstance(dovetail_device_info({}), Unavailable)
    discovery._asking_ends_a_process.cache_clear()
    monkeypatch.setattr(discovery, "_ASK", "import os; os.abort()")
    found = dovetail_device_info({})
    discovery._asking_ends_a_process.cache_clear()
    assert isinstance(found, Unavailable)
    assert "ends the process that asks for its devices: /sys/no/such/folder is missing" in found.reason


def test_the_probe_of_the_linker_is_right_where_it_can_link(info: DeviceInfo) -> None:
    assert probes.runs_correctly(identity_of(discovery.find_device(info.name)), linker._PROBE)


def test_no_platform() -> None:
    """In a separate process: the loader looks for drivers once, pip's PoCL in the folder that pyopencl names."""
    script = (
        "import os, tempfile; empty = tempfile.mkdtemp(); os.environ['OCL_ICD_VENDORS'] = empty\n"
        "import pyopencl; os.environ['PYOPENCL_HOME'] = empty\n"
        "from dovetail_gpu_opencl import dovetail_device_info; print(dovetail_device_info({}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Unavailable(reason='no OpenCL platform")
    assert 'pip install "dovetail-gpu-opencl[pocl]"' in done.stdout


def test_pocl_without_a_folder_that_it_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It lists no device then."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file" / "pocl"))
    _platforms(monkeypatch, [])
    found = dovetail_device_info({})
    assert isinstance(found, Unavailable)
    assert f"PoCL has none where it cannot write {tmp_path / 'file' / 'pocl'}: set POCL_CACHE_DIR" in found.hint


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
    with pytest.raises(UsageError, match="QUEUE of OPENCL is 'SIDEWAYS'; accepted: IN_ORDER, OUT_OF_ORDER"):
        dovetail_device_open(info, {"QUEUE": "SIDEWAYS"})
