"""Shell completion: what the program suggests for a line that is typed half."""

import pytest
from click.shell_completion import ShellComplete

from dovetail.cli import program


def suggested(*words: str) -> dict[str, str]:
    """Suggestion -> its kind, for the last word; those before it are complete."""
    complete = ShellComplete(program, {}, "dovetail", "_DOVETAIL_COMPLETE")
    return {item.value: item.type for item in complete.get_completions(list(words[:-1]), words[-1])}


@pytest.mark.parametrize(
    "words",
    [("run", "-d"), ("bench", "--device"), ("compare", "x.onnx", "-d"), ("tune", "-d"), ("ops", "--device")],
    ids=" ".join,
)
def test_devices(words: tuple[str, ...]) -> None:
    assert {"AUTO", "NUMPY", "ONEDNN", "OPENCL"} <= set(suggested(*words, ""))
    assert suggested(*words, "nu") == {"NUMPY": "plain"}


@pytest.mark.parametrize("command", ["info", "test", "doctor", "manifest"])
def test_plugins(command: str) -> None:
    assert suggested("plugins", command, "dovetail-cpu-n") == {"dovetail-cpu-numpy": "plain"}


@pytest.mark.parametrize("words", [("ops",), ("where",), ("plugins", "which")], ids=" ".join)
def test_operators(words: tuple[str, ...]) -> None:
    assert {"Conv", "ConvTranspose"} <= set(suggested(*words, "conv"))
    assert suggested(*words, "tim.vx::HSw") == {"tim.vx::HSwish": "plain"}


@pytest.mark.parametrize("command", ["run", "bench", "explain", "info", "compare", "compile", "tune", "convert"])
def test_models_are_files(command: str) -> None:
    assert suggested(command, "mod") == {"mod": "file"}


def test_commands_of_plugins() -> None:
    assert set(suggested("de")) == {"demo", "devices"}


def test_an_error_suggests_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_PLUGINS", "-no-such-plugin")
    assert suggested("run", "-d", "") == {}
