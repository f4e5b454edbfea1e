"""`dovetail generate`: text on stdout, remarks on stderr, JSON, Ctrl-C."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dovetail.cli import program
from dovetail_generate import TextGenerator
from dovetail_generate.decoding import Decoding


def _run(model: Path, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(program, ["generate", str(model), "-d", "NUMPY", "--room", "200", *arguments], **options)


def test_text_is_streamed(model: Path) -> None:
    result = _run(model, "-p", "The fox", "--tokens", "5", "--raw")
    want = "".join(piece.text for piece in TextGenerator(model, "NUMPY", room=200).generate(["The fox"], limit=5))
    assert (result.exit_code, result.stdout) == (0, f"{want}\n")
    assert "tokens after 7 on NUMPY; the first token after" in result.stderr


def test_json_of_several_prompts(model: Path) -> None:
    result = _run(
        model, "-p", "The fox", "-p", "-", "--tokens", "4", "--temperature", "1", "--seed", "3", "--json", input="Another"
    )
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert [text["prompt"] for text in found["texts"]] == ["The fox", "Another"]
    assert found["tokens"] == sum(len(text["tokens"]) for text in found["texts"])
    assert (found["device"], found["plans"], found["interrupted"]) == ("NUMPY", 2, False)
    assert found["tokens_per_second"] > 0
    assert set(found["seconds"]) == {"load", "first_token", "rest"}
    again = _run(model, "-p", "The fox", "--tokens", "4", "--temperature", "1", "--seed", "3", "--json")
    assert json.loads(again.stdout)["texts"][0] == found["texts"][0]
    assert _run(model, "-p", "The fox", "-p", "Another", "--tokens", "2").stdout.count("The fox") == 1


def test_a_draft_model(model: Path) -> None:
    want = _run(model, "-p", "The fox", "--tokens", "9", "--raw")
    assert _run(model, "-p", "The fox", "--tokens", "9", "--raw", "--draft", str(model)).stdout == want.stdout


def test_an_interrupt_ends_the_text(model: Path, monkeypatch: Any) -> None:
    steps: list[int] = []
    logits = Decoding.logits

    def interrupted(self: Decoding, texts: Any) -> Any:
        steps.append(1)
        if len(steps) == 3:
            raise KeyboardInterrupt
        return logits(self, texts)

    monkeypatch.setattr(Decoding, "logits", interrupted)
    result = _run(model, "-p", "The fox", "--json", "--raw")
    assert result.exit_code == 130
    found = json.loads(result.stdout)
    assert found["interrupted"]
    assert (found["tokens"], found["texts"][0]["ended"]) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "Missing option '-p'"),
        (["-p", "x", "--top-p", "0"], 2, "--top-p"),
        (["-p", "x", "--tokenizer", __file__], 1, "this is not a tokenizer.json"),
        (["-p", "word " * 100, "--raw"], 1, "accepted: 1 to 200"),
    ],
)
def test_what_is_refused(model: Path, arguments: list[str], code: int, message: str) -> None:
    result = _run(model, *arguments)
    assert result.exit_code == code
    assert message in result.stderr
