"""Parts of a mapped file as arrays."""

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from dovetail.device import aligned
from dovetail.errors import FormatError
from dovetail.frontend import MappedFile
from dovetail.graph.reloadable import check_reloadable, let_go

pytestmark = pytest.mark.skipif(not hasattr(mmap.mmap, "madvise"), reason="files are not mapped on Windows")

CONTENT = np.random.default_rng(5).integers(0, 256, 3 * mmap.PAGESIZE + 77, np.uint8)


def _mapped(path: Path) -> MappedFile:
    path.write_bytes(CONTENT.tobytes())
    with path.open("rb") as file:
        found = MappedFile.of(path, file.fileno())
    assert found is not None
    return found


@pytest.mark.parametrize("offset", [0, 1, 64, mmap.PAGESIZE, mmap.PAGESIZE + 3])
@pytest.mark.parametrize("length", [0, 5, mmap.PAGESIZE, 2 * mmap.PAGESIZE])
def test_regions(tmp_path: Path, offset: int, length: int) -> None:
    region = _mapped(tmp_path / "w").region(offset, length)
    assert not region.flags.writeable
    for _ in range(2):
        np.testing.assert_array_equal(region, CONTENT[offset : offset + length])
        let_go(region)
    copy = aligned(region[length // 2 :])
    assert not length or (copy.ctypes.data - length // 2) % 64 == 0
    np.testing.assert_array_equal(copy, CONTENT[offset + length // 2 : offset + length])


def test_neighbours_keep_their_content(tmp_path: Path) -> None:
    file = _mapped(tmp_path / "w")
    first, second = file.region(0, mmap.PAGESIZE + 100), file.region(mmap.PAGESIZE + 100, mmap.PAGESIZE)
    let_go(first)
    np.testing.assert_array_equal(second, CONTENT[mmap.PAGESIZE + 100 : 2 * mmap.PAGESIZE + 100])


def test_a_copy_is_shared_while_it_is_used(tmp_path: Path) -> None:
    region = _mapped(tmp_path / "w").region(3, 2 * mmap.PAGESIZE)
    first, second = aligned(region[1:]), aligned(region[8:])
    assert np.may_share_memory(first, second)


def test_a_file_is_checked_once_for_all_of_its_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [_mapped(tmp_path / name) for name in "ab"]
    arrays = [file.region(offset, 64) for file in files for offset in (0, 64, 128)]
    checked: list[MappedFile] = []
    monkeypatch.setattr(MappedFile, "check", lambda self: checked.append(self))
    check_reloadable([*arrays, *(array[1:] for array in arrays), np.zeros(3)])
    assert len(checked) == 2
    assert {*map(id, checked)} == {*map(id, files)}


def test_an_empty_file_is_not_mapped(tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    with (tmp_path / "w").open("rb") as file:
        assert MappedFile.of(tmp_path / "w", file.fileno()) is None


def test_what_was_written_to(tmp_path: Path) -> None:
    file = _mapped(tmp_path / "w")
    file.check()
    region, status = file.region(0, mmap.PAGESIZE), (tmp_path / "w").stat()
    os.utime(tmp_path / "w", ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    with pytest.raises(FormatError, match=r"'.*w' was changed since the model was read"):
        file.check()
    with pytest.raises(FormatError, match=r"(?s)was changed.*write a new file and rename it"):
        aligned(region)
    (tmp_path / "w").unlink()
    file.check()
    np.testing.assert_array_equal(aligned(region), CONTENT[: mmap.PAGESIZE])
