"""A model whose every name holds terminal escapes and thousands of characters: what commands print is harmless and short."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, save

from dovetail.cli import program
from dovetail.errors import DovetailError, UsageError, did_you_mean
from dovetail.graph import DType, TensorType

ESCAPE = "\x1b]0;owned\x07\x1b[31m\u202e\r\n"
LONG = ESCAPE + "x" * 3000
LONGEST_MESSAGE = 20_000


def _model(path: Path, op_type: str, name: Callable[[str], str]) -> None:
    x = helper.make_tensor_value_info(name("x"), TensorProto.FLOAT, [name("N"), 3])
    y = helper.make_tensor_value_info(name("y"), TensorProto.FLOAT, [name("M"), 3])
    node = helper.make_node(op_type, [name("x")], [name("t")], name=name("node"))
    last = helper.make_node("Relu", [name("t")], [name("y")], name=name("last"))
    graph = helper.make_graph([node, last], name("graph"), [x], [y], doc_string=name("doc"))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(name("domain"), 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=name("producer"))
    helper.set_model_props(model, {name("key"): name("value")})
    save(model, path)


COMMANDS = [
    "info {}",
    "explain {} -d NUMPY",
    "explain {} --schedule",
    "run {} -d NUMPY -i random",
    "run {} -d NUMPY -i nosuch=random",
    "run {} -d NUMPY -i random --shape nosuch=1,3",
    "run {} -d NUMPY -i random --shape 5,4",
    "compare {} -d NUMPY",
    "compare {} -d NUMPY --nodes",
    "bench {} -d NUMPY --seconds 0.01",
    "convert {} out.onnx",
    "convert {} out.onnx --shape 1,3",
    "compile {} -d NUMPY -o out.plans",
    "compile {} -d NUMPY -o out.plans --shape 2,3",
    "compile {} -d NUMPY -o out.plans --shape 2,4",
    "explain {} -d HETERO:NUMPY --shape 2,3",
]


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("op_type", ["Sigmoid", "Rleu\x1b[31m" + "z" * 3000], ids=["known", "unknown"])
def test_names_of_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, command: str, op_type: str
) -> None:
    monkeypatch.chdir(tmp_path)
    _model(Path("hostile.onnx"), op_type, lambda word: word + LONG)
    for extra in ([], ["--json"]):
        arguments = [*command.replace("{}", "hostile.onnx").split(), *extra]
        result = CliRunner().invoke(program, arguments, prog_name="dovetail", catch_exceptions=False)
        for text in (result.stdout, result.stderr, *caplog.messages):
            assert not any(sign in text for sign in "\x1b\x07\u202e\r"), text[:400]
        assert len(result.stderr) < LONGEST_MESSAGE


def test_messages_and_suggestions() -> None:
    error = DovetailError(f"no {LONG}", hint=LONG * 10)
    assert "\x1b" not in str(error)
    assert "\\x1b[31m" in str(error)
    assert len(str(error)) < LONGEST_MESSAGE
    assert "\n" in UsageError("two\nlines").message
    assert "\x1b" not in did_you_mean("relu\x1b", ["relu\x1b[0m"])
    assert "relu" in did_you_mean("relu\x1b", ["relu\x1b[0m"])
    assert len(did_you_mean("nothing", [f"{i}{LONG}" for i in range(1000)])) < LONGEST_MESSAGE
    assert "\x1b" not in str(TensorType(DType.FLOAT32, (LONG, None)))


def test_a_suggestion_is_a_word_that_is_nearly_the_same() -> None:
    assert did_you_mean("nope", ["opencl", "numpy"]) == "Known: numpy, opencl."
    assert did_you_mean("openc", ["opencl", "numpy"]) == "Did you mean 'opencl'?"
    assert did_you_mean("Rleu", ["Relu", "Elu"]) == "Did you mean 'Relu'?"
