"""Custom layers that do not fit a node, a device or a compiler: every error names file, line and node."""

import re
import runpy
from collections.abc import Sequence
from pathlib import Path

import pytest

from dovetail.device import DeviceInfo
from dovetail.errors import CompileError, OperatorError, UnsupportedNode, UsageError

shared = runpy.run_path(str(Path(__file__).with_name("_custom_layers.py")))
Session, layer, model, source, unknown = (shared[name] for name in ("Session", "layer", "model", "source", "unknown"))
NEGATE = shared["NEGATE"]


@pytest.fixture
def session(info: DeviceInfo) -> Session:
    return Session(info)


def wrong(
    session: Session, kind: type[Exception], said: str, xml: str, text: str = NEGATE, dims: Sequence[int] = (1, 2, 3, 4)
) -> str:
    given = model([unknown("New", ["x"], "y", big=3)], {"x": dims}, {"y": dims})
    with pytest.raises(kind, match=said) as raised:
        session.compile(given, xml, text)
    assert "'node_y' (my::New)" in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("work", "said"),
    [
        ('global="X/(Y-3),1"', "formula 'X/(Y-3)' divides by zero"),
        ('global="X-9"', "global='X-9' gives (-5,)"),
        ('global="X-4,Y"', "global='X-4,Y' gives (0, 3)"),
        ('global="X*1000000000*Y"', "leaves the range of 32-bit integers"),
        ('global="X" local="X-5"', "local='X-5' gives (-1,)"),
        ('global="Y" local="2"', "the global size (3,) is not a multiple of the local size (2,)"),
        ('global="X" dim="input,1"', "dim is input 1; the node has 1 input"),
    ],
)
def test_work_sizes_that_make_no_sense(session: Session, work: str, said: str) -> None:
    wrong(session, OperatorError, rf"test\.xml:4: .*{re.escape(said)}", layer("New", "negate", work=work))


def test_a_local_size_beyond_the_device(session: Session) -> None:
    xml = layer("New", "negate", work='global="X*100000" local="X*100000"')
    wrong(session, UnsupportedNode, r"test\.xml:4: local size \(400000,\); the device takes at most", xml)


def test_ports_that_the_node_has_not(session: Session) -> None:
    xml = layer("New", "negate", ["BFYX", "BFYX"])
    wrong(session, OperatorError, r"test\.xml:3: input port-index 1 is out of range; the node has 1 input", xml)
    xml = layer("New", "negate").replace('type="output" port-index="0"', 'type="output" port-index="2"')
    wrong(session, OperatorError, r"test\.xml:3: output port-index 2 is out of range; the node has 1 output", xml)


def test_a_kernel_with_another_number_of_arguments(session: Session) -> None:
    shown = wrong(session, CompileError, r"'negate' of test\.xml:1 takes 2 arguments.*is given 1", layer("New", "negate", []))
    assert "in the order of arg-index" in shown


@pytest.mark.parametrize("declared", ["int x", "__local float* x", "read_only image2d_t x"])
def test_a_kernel_with_an_argument_of_another_kind(session: Session, declared: str) -> None:
    text = f"__kernel void negate({declared}, __global float* y) {{ y[0] = 1; }}"
    kind = re.escape(declared.removeprefix("read_only ").removesuffix(" x"))
    said = rf"'negate' of test\.xml:1: argument 0 is declared as {kind}; accepted: a pointer to __global.* is given input 'x'"
    for _ in range(2):  # from source, and from a binary in the cache
        wrong(session, CompileError, said, layer("New", "negate"), text)


def test_an_entry_that_is_not_in_the_source(session: Session) -> None:
    shown = wrong(session, CompileError, r"'other' of test\.xml:1 is not in the source", layer("New", "other"))
    assert "kernels there: negate" in shown


def test_a_source_without_kernels_does_not_reach_the_driver(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyopencl.Program.build", lambda *_, **__: pytest.fail("it does"))
    text = "// The kernel.\nint other(int x) { return x; } /* Another\nkernel. */"
    shown = wrong(session, CompileError, "is not in the source", layer("New", "other"), text)
    assert "kernels there: none" in shown


def test_a_source_that_does_not_compile(session: Session, tmp_path: Path) -> None:
    text = "__kernel void negate(__global float* x) {\n  undeclared_name = 1;\n}\n"
    shown = wrong(session, CompileError, r"'negate' of test\.xml:1 does not compile", layer("New", "negate"), text)
    assert "undeclared_name" in shown.partition("source:")[0]
    assert "clBuildProgram failed" not in shown
    assert "   34   undeclared_name = 1;" in shown
    given = model([unknown("New", ["x"], "y")], {"x": (1, 1, 1, 1)}, {"y": (1, 1, 1, 1)})
    with pytest.raises(CompileError):
        session.compile(given, layer("New", "negate"), text, DUMP_KERNELS=tmp_path / "new folder")
    (dumped,) = (tmp_path / "new folder").iterdir()
    assert "undeclared_name" in dumped.read_text().partition("Build Log:")[2]


def test_a_dump_that_cannot_be_written(session: Session, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    given = model([unknown("New", ["x"], "y")], {"x": (1, 1, 1, 1)}, {"y": (1, 1, 1, 1)})
    for folder, said in ((str(tmp_path / "file" / "x"), "cannot be written"), (5, "DUMP_KERNELS of OPENCL is 5; accepted")):
        with pytest.raises(UsageError, match=said):
            session.compile(given, layer("New", "negate"), NEGATE, DUMP_KERNELS=folder)
