"""`dovetail convert`, and `Core.write_model` below it, with a frontend made here and one that only reads."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from onnx import helper

import dovetail
from dovetail.errors import FormatError, PluginFailed, UnknownFormat, UsageError
from dovetail.graph import GraphBuilder, Model
from dovetail.plugins import temporary


@dovetail.hookimpl
def dovetail_read_model(source: Path | bytes) -> Model:
    g = GraphBuilder()
    return g.model(outputs=[g.input(source.decode() if isinstance(source, bytes) else source.read_text(), "float32", [2])])


@dovetail.hookimpl
def dovetail_write_model(model: Model, options: Mapping[str, Any]) -> bytes:
    for node in model.graph.nodes:
        if node.op.op_type == "Sinh":
            raise FormatError(f"the format has no place for node {node}")
    shown = [f"{node.op.key}:{model.graph.types[node.outputs[0]]}" for node in model.graph.nodes]
    return " ".join([*shown, *map(str, options)]).encode()


@pytest.fixture
def notes() -> Iterator[None]:
    """A format of text files for the whole process."""
    plugin = SimpleNamespace(
        dovetail_api="1.0", dovetail_read_model=dovetail_read_model, dovetail_write_model=dovetail_write_model
    )
    with temporary(plugin, name="notes", kind="frontends", key="notes"):
        yield


@pytest.fixture
def source(tmp_path: Path, save_model: Callable[..., Path]) -> Path:
    nodes = [helper.make_node("Shape", ["w"], ["s"]), helper.make_node("Reshape", ["x", "s"], ["y"])]
    return save_model(tmp_path / "model.onnx", nodes, {"x": ["N", 6]}, {"y": None}, w=[[1.0, 2, 3], [4, 5, 6]])


def test_the_frontend_gets_bound_typed_folded_operators(notes: None, invoke: Any, source: Path) -> None:
    done = invoke("convert", source, "out.notes", "--shape", "x=1,6")
    assert done.stdout == ""
    assert "out.notes" in done.stderr
    assert Path("out.notes").read_text() == "Reshape:float32[2, 3]"


def test_json(notes: None, invoke_json: Any, source: Path) -> None:
    done = invoke_json("convert", source, "out", "--to", "notes", "--shape", "x=1,6")
    expected = {"from": "onnx", "to": "notes", "nodes": 2, "bytes": len("Reshape:float32[2, 3]")}
    assert done == {"source": str(source), "target": "out", **expected}


def test_formats(notes: None, invoke: Any, invoke_json: Any) -> None:
    found = {f["format"]: f for f in invoke_json("convert", "--formats")["formats"]}
    assert found["notes"]["writes"]
    assert (found["xml"]["reads"], found["xml"]["writes"]) == (True, False)
    assert (found["onnx"]["reads"], found["onnx"]["writes"]) == (True, True)
    assert "onnx" in found["onnx"]["provider"]
    assert ".notes" in invoke("convert", "--formats").stdout


def test_options_reach_the_frontend(notes: None, tmp_path: Path, source: Path) -> None:
    core = dovetail.Core()
    core.write_model(core.read_model(source).reshape({"x": (1, 6)}), tmp_path / "out.notes", comment="none")
    assert (tmp_path / "out.notes").read_text().endswith(" comment")


def test_what_cannot_be_written(notes: None, invoke: Any, source: Path) -> None:
    for arguments, words in (
        ([source, "out.notes"], "say all of its shape"),
        ([source, "out.xml", "--shape", "x=1,6"], "reads .xml files but does not write them"),
        ([source, "out.nothing", "--shape", "x=1,6"], "no installed frontend"),
        ([source, "out", "--shape", "x=1,6"], "has no suffix"),
        ([source, "out.xml"], "reads .xml files but does not write them"),
        ([source, "missing/out.notes", "--shape", "x=1,6"], "the folder 'missing' does not exist\n  make it first"),
    ):
        assert words in invoke("convert", *arguments, code=1).stderr
    assert not list(Path().glob("*out*"))
    invoke("convert", source, code=2)
    assert "not both" in invoke("convert", "--formats", source, code=2).stderr


def test_the_source_is_not_overwritten(notes: None, invoke: Any, source: Path) -> None:
    before = source.read_bytes()
    same = source.parent / "." / source.name
    assert "the same file" in invoke("convert", source, same, "--to", "notes", "--shape", "x=1,6", code=2).stderr
    assert source.read_bytes() == before


def test_a_refusal_leaves_the_old_file(notes: None, tmp_path: Path, save_model: Callable[..., Path]) -> None:
    path = save_model(tmp_path / "sinh.onnx", [helper.make_node("Sinh", ["x"], ["y"], name="s")], {"x": [2]}, {"y": None})
    target = tmp_path / "out.notes"
    target.write_text("before")
    core = dovetail.Core()
    with pytest.raises(FormatError, match="node 's' \\(Sinh\\)"):
        core.write_model(core.read_model(path), target)
    assert target.read_text() == "before"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.notes", "sinh.onnx"]


def test_a_frontend_that_returns_no_bytes(tmp_path: Path) -> None:
    @dovetail.hookimpl
    def write(model: Model) -> str:
        return "text"

    core = dovetail.Core()
    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_read_model=dovetail_read_model, dovetail_write_model=write)
    core.plugins.register(plugin, name="acme", kind="frontends", key="acme")
    model = core.read_model(b"x", format="acme")
    with pytest.raises(PluginFailed, match="returned str, not bytes"):
        core.write_model(model, tmp_path / "out.acme")
    with pytest.raises(UnknownFormat):
        core.write_model(model, tmp_path / "out.xml")
    g = GraphBuilder()
    with pytest.raises(UsageError, match="'x'"):
        core.write_model(g.model(outputs=[g.input("x", "float32", None)]), tmp_path / "out.acme")


def test_a_frontend_that_takes_models_as_they_are(tmp_path: Path, source: Path) -> None:
    """Open dimensions and operators by name: nothing is looked up or computed."""

    @dovetail.hookimpl
    def dovetail_write_unbound_model(model: Model) -> bytes:
        shown = [f"{type(node.op).__name__}:{node.op.op_type}" for node in model.graph.nodes]
        return f"{model.inputs['x']} {shown}".encode()

    core = dovetail.Core()
    hooks = {"dovetail_read_model": dovetail_read_model, "dovetail_write_unbound_model": dovetail_write_unbound_model}
    core.plugins.register(SimpleNamespace(dovetail_api="1.0", **hooks), name="raw", kind="frontends", key="raw")
    assert core.plugins.writes("raw")
    core.write_model(core.read_model(source), tmp_path / "out.raw")
    shown = "float32[N, 6] ['UnboundOperator:Shape', 'UnboundOperator:Reshape']"
    assert (tmp_path / "out.raw").read_text() == shown
