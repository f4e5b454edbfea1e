"""Files that are not an ONNX model, or not a whole one."""

import gzip
import io
import os
import socket
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

FOREIGN = {
    "PNG": (b"\x89PNG\r\n\x1a\n" + b"\0" * 60, "a PNG image"),
    "JPEG": (b"\xff\xd8\xff\xe0" + b"\0" * 60, "a JPEG image"),
    "gzip": (gzip.compress(b"model"), "a gzip archive"),
    "HTML": (b"\n<!DOCTYPE html>\n<html><body>404</body></html>", "an HTML page"),
    "XML": (b'<?xml version="1.0"?><net/>', "an XML or HTML file"),
    "Git-LFS": (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "a Git-LFS pointer"),
    "JSON": (b'{"model": []}', "JSON"),
    "JSON with a mark": (b"\xef\xbb\xbf[1, 2]", "JSON"),
    "text": (b"Entry not found\n" * 100, "text"),
    "text cut in a character": (b"a" * 511 + "é".encode(), "text"),
    "pickle": (b"\x80\x04\x95\x10" + b"\0" * 30, "a Python pickle"),
    "HDF5": (b"\x89HDF\r\n\x1a\n" + b"\0" * 30, "an HDF5 file"),
    "TFLite": (b"\x1c\0\0\0TFL3" + b"\0" * 30, "a TensorFlow Lite model"),
    "ONNX Runtime's own format": (b"\x28\0\0\0ORTM" + b"\0" * 30, "a model in the format of ONNX Runtime"),
    "safetensors": ((40).to_bytes(8, "little") + b'{"w":{"dtype":"F32","shape":[1]}}' + b"\0" * 30, "a safetensors file"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_another_format_is_named(refuse: Any, tmp_path: Path, name: str) -> None:
    content, what = FOREIGN[name]
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    refuse(path, f"this is {what}", "not an ONNX model")


def test_zip_is_named(refuse: Any, tmp_path: Path) -> None:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("data.pkl", b"x")
    refuse(stream.getvalue(), "a ZIP archive")


@pytest.mark.parametrize("as_path", [True, False])
def test_empty(refuse: Any, tmp_path: Path, as_path: bool) -> None:
    path = tmp_path / "model.onnx"
    path.touch()
    refuse(path if as_path else b"", "the file is empty")


def test_random_bytes(refuse: Any) -> None:
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 10, 100, 1000, 10_000, 100_000):
        for _ in range(20):
            refuse(rng.bytes(size))


def test_zeros(refuse: Any) -> None:
    refuse(b"\0" * 100_000, "damaged")


def test_truncated_at_every_kilobyte(refuse: Any, build: Any) -> None:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((40, 40)).astype(np.float32), f"w{i}") for i in range(8)]
    nodes = [helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"v{i + 1}"], name=f"layer{i}") for i in range(8)]
    content = build(nodes, ["v0"], ["v8"], weights).SerializeToString()
    assert len(content) > 50_000
    for length in range(1024, len(content), 1024):
        refuse(content[:length], "cut off", f"has {length}")


def test_truncated_at_every_byte_of_a_small_model(refuse: Any, good: bytes) -> None:
    for length in range(len(good)):
        refuse(good[:length])


def test_folder(refuse: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.mkdir()
    refuse(path, "this is a folder", "accepted: a regular file")


def test_fifo_does_not_wait(refuse: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    os.mkfifo(path)
    refuse(path, "this is a FIFO")


def test_socket(refuse: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path of a socket is at most about 100 characters long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("model.onnx")
        refuse(Path("model.onnx"), "this is a socket")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null"])
def test_device(refuse: Any, device: str) -> None:
    assert stat.S_ISCHR(os.stat(device).st_mode)
    refuse(Path(device), "this is a device")


def test_missing(refuse: Any, tmp_path: Path) -> None:
    refuse(tmp_path / "gone.onnx", "cannot be read: No such file")


def test_link_to_nothing(refuse: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.symlink_to("gone")
    refuse(path, "cannot be read: No such file")


def test_link_to_itself(refuse: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.symlink_to(path)
    refuse(path, "cannot be read: Too many levels of symbolic links")


@pytest.mark.parametrize("name", ["a\0b.onnx", "n" * 300 + ".onnx"])
def test_impossible_names(refuse: Any, name: str) -> None:
    refuse(Path(name), "cannot be read")


def test_unreadable(refuse: Any, tmp_path: Path, good: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(good)
    path.chmod(0)
    if os.geteuid() != 0:
        refuse(path, "cannot be read: Permission denied")
        return
    os.seteuid(65534)  # root reads everything, so become nobody for the call
    try:
        with pytest.raises(Exception, match="cannot be read: Permission denied") as caught:
            _read(path)
    finally:
        os.seteuid(0)
    assert caught.type.__name__ == "FormatError"


def _read(path: Path) -> None:
    from dovetail_frontend_onnx import dovetail_read_model  # already imported by then; finding it needs files of root

    dovetail_read_model(path, {})


def test_more_than_protobuf_can_hold(refuse: Any, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)  # a hole: takes no room on the disk
    refuse(path, "has 2147483648 bytes; accepted: at most 2147483647")


def test_ir_version_from_the_future(refuse: Any, build: Any) -> None:
    newest = int(onnx.IR_VERSION)
    refuse(
        build([helper.make_node("Relu", ["x"], ["y"])], ir_version=newest + 1),
        f"the IR version is {newest + 1}",
        f"1 to {newest}",
    )


def test_no_ir_version(refuse: Any, build: Any) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])])
    model.ClearField("ir_version")
    refuse(model, "ir_version is missing")


def test_no_graph(refuse: Any, build: Any) -> None:
    model = build([])
    model.ClearField("graph")
    refuse(model, "the model has no graph")


def test_missing_opset_import(refuse: Any, build: Any) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])])
    model.ClearField("opset_import")
    refuse(model, "the model has no opset_import")


def test_opset_import_of_another_domain_only(refuse: Any, build: Any) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"], name="act")], opset_imports=[helper.make_opsetid("com.acme", 1)])
    refuse(model, "node 'act' (Relu)", "no opset_import for the domain 'ai.onnx'")


@pytest.mark.parametrize("version", [-1, 0, 999, 2**63 - 1])
def test_opset_out_of_range(refuse: Any, build: Any, version: int) -> None:
    model = build([helper.make_node("Relu", ["x"], ["y"])], opset_imports=[helper.make_opsetid("", version)])
    refuse(model, f"version {version} of the domain 'ai.onnx'", f"accepted: 1 to {onnx.defs.onnx_opset_version()}")


def test_two_opsets_of_one_domain(refuse: Any, build: Any) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx", 18)]
    refuse(build([helper.make_node("Relu", ["x"], ["y"])], opset_imports=imports), "as version 17 and 18")


def test_unknown_domain_and_operator_are_named_when_compiled(core: Any, build: Any) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    for node, words in (
        (helper.make_node("Frob", ["x"], ["y"], name="f", domain="com.acme"), "com.acme::Frob"),
        (helper.make_node("Rellu", ["x"], ["y"], name="f"), "Rellu"),
    ):
        model = core.read_model(build([node], opset_imports=imports).SerializeToString(), format="onnx")
        with pytest.raises(Exception, match=words) as caught:
            core.compile_model(model, "NUMPY")
        assert caught.type.__name__ == "UnknownOperator"
        assert "'f'" in str(caught.value)
