"""ModelSource: files are checked before they are read, and a model reaches only files beside it.

What is refused is tested with the frontend that uses it, in tests/bad_inputs.
"""

import os
from pathlib import Path

import pytest

from dovetail.frontend import FormatError, ModelSource
from dovetail.names import printable


def test_bytes() -> None:
    source = ModelSource(b"abc")
    assert (source.name, source.read(limit=3)) == ("<bytes>", b"abc")


def test_path(tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(b"abc")
    assert (ModelSource(path).name, ModelSource(path).read(limit=3)) == (str(path), b"abc")


@pytest.mark.parametrize("as_path", [True, False])
@pytest.mark.parametrize(("content", "message"), [(b"", "the file is empty"), (b"abcd", "has 4 bytes; accepted: at most 3")])
def test_size(tmp_path: Path, as_path: bool, content: bytes, message: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(FormatError, match=message):
        ModelSource(path if as_path else content).read(limit=3)


def test_name_of_a_path_is_escaped() -> None:
    assert ModelSource(Path("a\nb\x1b[0m")).name == r"a\nb\x1b[0m"


def test_open_beside(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/data").write_bytes(b"abc")
    source = ModelSource(tmp_path / "model")
    for location in ("sub/data", "./sub//data", "sub/./data"):
        with source.open_beside(location) as file:
            assert file.read() == b"abc"


def test_open_beside_a_folder_leaves_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    before = set(os.listdir("/dev/fd"))
    for location in ("sub", "sub/gone", "gone/data"):
        with pytest.raises(FormatError, match="cannot be opened"):
            ModelSource(tmp_path / "model").open_beside(location)
    assert set(os.listdir("/dev/fd")) == before


def test_folder_that_is_exchanged_for_a_link(tmp_path: Path) -> None:
    """The folder itself may be reached through a link; nothing below it may be one."""
    (tmp_path / "real").mkdir()
    (tmp_path / "real/data").write_bytes(b"abc")
    (tmp_path / "folder").symlink_to("real")
    with ModelSource(tmp_path / "folder/model").open_beside("data") as file:
        assert file.read() == b"abc"
    with pytest.raises(FormatError, match="cannot be opened"):
        ModelSource(tmp_path / "model").open_beside("folder/data")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("conv1", "conv1"),
        ("名前", "名前"),
        ("a\nb\0\x1b[31m\u202e", r"a\nb\x00\x1b[31m\u202e"),
        (b"ok\xff", r"ok\udcff"),
        ("n" * 101, "n" * 100 + "... (101 characters)"),
    ],
)
def test_printable(text: str | bytes, shown: str) -> None:
    assert printable(text) == shown
