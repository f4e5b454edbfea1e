"""Pages of drivers' libraries go back to the system, but none that the process has changed."""

import ctypes
import mmap
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dovetail.device import DeviceInfo
from dovetail_gpu_opencl import driver_pages
from dovetail_gpu_opencl.driver_pages import give_back

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems are not told which pages are unused")

PAGES = 64
CONTENT = bytes(range(256)) * (PAGES * mmap.PAGESIZE // 256)


@pytest.fixture
def mapped(tmp_path: Path) -> tuple[mmap.mmap, int]:
    """A private mapping of a file, all of which was read, and its address."""
    path = tmp_path / "library.so"
    path.write_bytes(CONTENT)
    with path.open("rb") as file:
        found = mmap.mmap(file.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    assert found[:] == CONTENT
    return found, ctypes.addressof(ctypes.c_char.from_buffer(found))


def resident(address: int) -> int:
    """The kB of the mapping at an address that are in the memory of this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    next(line for line in lines if line.startswith(f"{address:x}-"))
    return int(next(line for line in lines if line.startswith("Rss:")).split()[1])


def test_pages_of_a_file_go_back_and_are_read_again(mapped: tuple[mmap.mmap, int]) -> None:
    memory, address = mapped
    before = resident(address)
    assert give_back(address, address + len(memory))
    assert resident(address) == 0 < before
    assert memory[:] == CONTENT


def test_changed_pages_stay(mapped: tuple[mmap.mmap, int]) -> None:
    """As those in which the loader of libraries writes addresses."""
    memory, address = mapped
    memory[5 * mmap.PAGESIZE] = 77
    assert not give_back(address, address + len(memory))
    assert memory[5 * mmap.PAGESIZE] == 77


def test_memory_of_no_file_stays() -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[0] = 1
    assert not give_back(address, address + mmap.PAGESIZE)
    assert memory[0] == 1


LOADS = """
from dovetail_gpu_opencl import driver_pages
from dovetail_gpu_opencl.device import OpenCLDevice
import contextlib, sys
if sys.argv[1] == "keep":
    driver_pages.giving_back = contextlib.nullcontext
from dovetail_gpu_opencl import discovery
infos = discovery.device_infos()
assert isinstance(infos, list), infos
def said(name):
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith(name))
print(said("RssFile"))
OpenCLDevice(infos[0])
print(said("RssFile"), said("VmHWM"))
"""


@pytest.fixture(scope="module")
def used() -> dict[str, list[int]]:
    """The kB of files with the drivers loaded and with a context, and the peak of a process that keeps and gives back pages."""
    found = {
        mode: subprocess.run([sys.executable, "-c", LOADS, mode], capture_output=True, text=True, check=True)
        for mode in ("keep", "give")
    }
    return {mode: [int(number) for number in done.stdout.split()] for mode, done in found.items()}


def test_a_process_that_has_found_its_devices_holds_less_of_the_drivers(used: dict[str, list[int]]) -> None:
    """23 and 86 MB of files with two PoCLs."""
    assert used["give"][0] < used["keep"][0] - 1000


def test_a_process_with_a_context_holds_less_of_the_drivers(used: dict[str, list[int]], info: DeviceInfo) -> None:
    """A context of PoCL touches 20 MB of its compiler, whether or not a kernel is compiled."""
    if info.kind != "CPU":
        pytest.skip("a GPU's driver has what it needs from then on")
    assert used["give"][1] < used["keep"][1] - 1000
    assert used["give"][1] < used["give"][0] + 4000


def test_two_compilers_are_never_in_memory_at_once(used: dict[str, list[int]], infos: Sequence[DeviceInfo]) -> None:
    """142 and 118 MB with int8 MiniLM, at most 99 and 122 with nothing but two PoCLs."""
    elsewhere = any(name in os.environ for name in driver_pages._OTHERS)
    if len([one for one in infos if one.kind == "CPU"]) < 2 or elsewhere or not driver_pages._VENDORS.is_dir():
        pytest.skip("no two drivers of CPUs, one of which is the system's")
    assert used["give"][2] < used["keep"][2] - 5000


@pytest.mark.parametrize("reason", ["", "OCL_ICD_VENDORS", "conda"])
def test_drivers_of_the_system_are_loaded_where_the_loader_looks_for_them(
    reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in driver_pages._OTHERS:
        monkeypatch.delenv(name, raising=False)
    for name, content in (
        ("a.icd", "libgpu.so.1\n"),
        ("b.icd", "libpocl-none.so\n"),
        ("c.icd", "/x/libpocl.so.2\n"),
        ("d", "pocl"),
    ):
        (tmp_path / name).write_text(content)
    loaded: list[str] = []

    def load(name: str) -> None:
        loaded.append(name)
        if "none" in name:
            raise OSError("no such library")

    monkeypatch.setattr(driver_pages, "_VENDORS", tmp_path)
    monkeypatch.setattr(driver_pages.ctypes, "CDLL", load)
    if reason == "conda":
        (tmp_path / "conda-meta").mkdir()
        monkeypatch.setattr(sys, "prefix", str(tmp_path))
    elif reason:
        monkeypatch.setenv(reason, "/elsewhere")
    driver_pages.load_apart()
    assert loaded == ([] if reason else ["libpocl-none.so", "/x/libpocl.so.2"])
    monkeypatch.setattr(driver_pages, "_VENDORS", tmp_path / "nowhere")
    driver_pages.load_apart()
