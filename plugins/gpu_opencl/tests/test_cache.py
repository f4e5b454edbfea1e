"""Programs are built once for each distinct source, by all processes together; what is wrong with the cache costs time only."""

import subprocess
import sys
from pathlib import Path

import pyopencl as cl
import pytest

from dovetail.cache import FileCache
from dovetail.device import DeviceInfo
from dovetail.errors import CompileError
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.program import CACHE_SECTION

SOURCE = "__kernel void fill(__global int* dst) { dst[get_global_id(0)] = 7; }\n"
LAUNCH = Launch("fill.cl", SOURCE, "fill", (), (1,))


@pytest.fixture
def folder(kept: Path, info: DeviceInfo) -> Path:
    """The folder of binaries, without those of the products by which a device tries its matrix units."""
    found = kept / CACHE_SECTION
    OpenCLDevice(info)
    for entry in found.iterdir() if found.exists() else ():
        entry.unlink()
    return found


def counts(info: DeviceInfo, launch: Launch = LAUNCH) -> tuple[int, int]:
    device = OpenCLDevice(info)
    device.programs.get(launch, "n")
    device.programs.get(launch, "n")
    return device.programs.builds, device.programs.hits


def test_second_device_takes_the_binary(info: DeviceInfo, folder: Path) -> None:
    assert counts(info) == (1, 0)
    assert counts(info) == (0, 1)
    assert len(list(folder.iterdir())) == 1


def test_source_and_options_make_the_key(info: DeviceInfo, folder: Path) -> None:
    other = Launch("fill.cl", SOURCE, "fill", (), (1,), options=("-DX=1",))
    assert counts(info) == (1, 0)
    assert counts(info, other) == (1, 0)
    assert len(list(folder.iterdir())) == 2


def test_second_process_takes_the_binary(info: DeviceInfo, folder: Path) -> None:
    script = (
        "from dovetail_gpu_opencl import dovetail_device_info\n"
        "from dovetail_gpu_opencl.device import OpenCLDevice\n"
        "from dovetail_gpu_opencl.launch import Launch\n"
        f"info = next(i for i in dovetail_device_info({{}}) if i.name == {info.name!r})\n"
        f"device = OpenCLDevice(info); device.programs.get(Launch('fill.cl', {SOURCE!r}, 'fill', (), (1,)), 'n')\n"
        "print(device.programs.builds, device.programs.hits)"
    )
    runs = [subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True) for _ in range(2)]
    assert [run.stdout.split() for run in runs] == [["1", "0"], ["0", "1"]]


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign"])
def test_damaged_entries_are_built_again(damage: str, info: DeviceInfo, folder: Path) -> None:
    assert counts(info) == (1, 0)
    (entry,) = folder.iterdir()
    good = entry.read_bytes()
    flipped = bytes([*good[:-1], good[-1] ^ 1])
    entry.write_bytes({"flip": flipped, "cut": good[:-5], "empty": b"", "foreign": b"\x89PNG" + good}[damage])
    assert counts(info) == (1, 0)
    assert entry.read_bytes()[:17] == good[:17]  # not all drivers build the same binary again
    assert counts(info) == (0, 1)


def test_a_binary_that_the_driver_refuses_is_built_again(info: DeviceInfo, folder: Path) -> None:
    assert counts(info) == (1, 0)
    (entry,) = folder.iterdir()
    FileCache(CACHE_SECTION, folder.parent).put(entry.name, b"no binary of any driver")
    assert counts(info) == (1, 0)
    assert counts(info) == (0, 1)


def test_a_folder_that_cannot_be_made_is_no_error(info: DeviceInfo, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = kept / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("DOVETAIL_CACHE_DIR", str(blocked))
    assert counts(info) == (1, 0)


def test_a_cache_that_keeps_nothing(info: DeviceInfo, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_CACHE_LIMIT", "0")
    monkeypatch.setattr(cl.Program, "get_info", None)  # a binary that nobody keeps is not asked for
    assert counts(info) == (1, 0)
    assert counts(info) == (1, 0)
    assert list(folder.iterdir() if folder.exists() else ()) == []


def test_build_failures_show_log_and_source(info: DeviceInfo, folder: Path) -> None:
    launch = Launch("wrong.cl", "__kernel void wrong() {\n  undeclared = 1;\n}\n", "wrong", (), (1,))
    with pytest.raises(CompileError) as caught:
        OpenCLDevice(info).programs.get(launch, "'n' (Op)")
    message = str(caught.value)
    assert message.startswith("node 'n' (Op): the kernel 'wrong' of wrong.cl does not compile")
    assert "undeclared" in message
    assert "    2   undeclared = 1;" in message
    assert list(folder.iterdir() if folder.exists() else ()) == []


def test_the_hint_of_a_build_failure_names_a_folder_that_pocl_cannot_write(
    info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the folder is there, as in a read-only container, PoCL has a device, and gives no reason why it builds nothing."""
    device = OpenCLDevice(info)
    (tmp_path / "file").touch()
    monkeypatch.setenv("POCL_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(CompileError) as caught:
        device.programs.get(Launch("wrong.cl", "__kernel void wrong() { undeclared = 1; }", "wrong", (), (1,)), "'n' (Op)")
    named = f"cannot write {tmp_path / 'file'}: set POCL_CACHE_DIR" in (caught.value.hint or "")
    assert named == device.caps.needs_linker
