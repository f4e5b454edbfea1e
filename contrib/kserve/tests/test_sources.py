"""Models as the command line names them, and their files."""

import os
from pathlib import Path

import pytest

from dovetail.errors import UsageError
from dovetail_kserve.sources import FileState, Source, find_versions, parse_source, parse_sources


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in [
        "a.onnx",
        "m/x.onnx",
        "v/1/x.onnx",
        "v/2/y.xml",
        "v/2/y.bin",
        "v/10/x.onnx",
        "v/03/x.onnx",
        "v/notes/x.onnx",
        "e/1/t",
    ]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("a.onnx", "a", "a.onnx"),
        ("b=a.onnx", "b", "a.onnx"),
        ("m", "m", "m"),
        ("x-1=./m", "x-1", "m"),
        ("v/../m/", "m", "v/../m"),
    ],
)
def test_a_name_is_given_or_that_of_the_path(folder: Path, text: str, name: str, path: str) -> None:
    assert parse_source(text) == Source(name, Path(path))


@pytest.mark.parametrize("text", ["=a.onnx", "a/b=a.onnx", "a b=a.onnx", "é=a.onnx", "..=a.onnx"])
def test_a_name_must_fit_into_an_address(folder: Path, text: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a model"):
        parse_source(text)


def test_models_need_files_and_names_of_their_own(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"file or folder missing\.onnx"):
        parse_source("missing.onnx")
    with pytest.raises(UsageError, match="both called 'a'"):
        parse_sources(["a.onnx", "a=m"])


def versions(path: Path) -> dict[str, str]:
    return {version: file.name for version, file in find_versions(Source("m", path), ["onnx", "xml"]).items()}


def test_versions_are_folders_named_by_numbers(folder: Path) -> None:
    assert list(versions(folder / "v").items()) == [("1", "x.onnx"), ("2", "y.xml"), ("10", "x.onnx")]
    assert versions(folder / "m") == {"1": "x.onnx"}
    assert versions(folder / "a.onnx") == {"1": "a.onnx"}


def test_folders_without_a_model_or_with_several_are_refused(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"has no model; accepted: a model file \(.onnx, .xml\)"):
        versions(folder / "e")
    (folder / "m" / "z.onnx").write_bytes(b"")
    with pytest.raises(UsageError, match=r"several model files: x.onnx, z.onnx"):
        versions(folder / "m")


def test_a_file_has_changed_when_it_or_its_weights_are_others(folder: Path) -> None:
    path = folder / "v" / "2" / "y.xml"
    before = FileState.of(path)
    assert FileState.of(path) == before
    other = folder / "v" / "2" / "other.txt"
    other.write_bytes(b"1")
    assert FileState.of(path) == before
    weights = path.with_suffix(".bin")
    os.utime(weights, ns=(1, 1))
    changed = FileState.of(path)
    assert changed != before
    replacement = folder / "new"
    replacement.write_bytes(b"")
    replacement.replace(path)
    assert FileState.of(path) != changed
    path.unlink()
    with pytest.raises(FileNotFoundError):
        FileState.of(path)
