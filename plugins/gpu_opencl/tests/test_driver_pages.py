"""Pages of drivers' libraries go back to the system, but none that the process has changed."""

import ctypes
import mmap
import subprocess
import sys
from pathlib import Path

import pytest

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
from dovetail_gpu_opencl import discovery, driver_pages
import contextlib, sys
if sys.argv[1] == "keep":
    driver_pages.giving_back = contextlib.nullcontext
infos = discovery.device_infos()
assert isinstance(infos, list), infos
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssFile")))
"""


def test_a_process_that_has_found_its_devices_holds_less_of_the_drivers() -> None:
    """Next to one that gives nothing back: 23 and 86 MB of files with two PoCLs."""
    found = [
        subprocess.run([sys.executable, "-c", LOADS, mode], capture_output=True, text=True, check=True)
        for mode in ("keep", "give")
    ]
    kept, given = (int(done.stdout) for done in found)
    assert given < kept - 1000
