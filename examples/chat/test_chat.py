"""The example with a small random model: greedy tokens of five prompts are those of the reference in float64."""

import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]

TOKENS = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> Any:
    """The model of the tests of dovetail-generate."""
    write = runpy.run_path(str(ROOT / "contrib" / "generate" / "tests" / "conftest.py"))["write_model"]
    return write(tmp_path_factory.mktemp("chat") / "small.gguf", seed=SEED)


@pytest.fixture(scope="module")
def example() -> Any:
    """The functions of compare_float64.py."""
    sys.path.insert(0, str(FOLDER))
    try:
        return runpy.run_path(str(FOLDER / "compare_float64.py"))
    finally:
        sys.path.remove(str(FOLDER))


SEED = 6
"""A model whose most likely token is at no step a matter of rounding: see the test."""


@pytest.fixture(scope="module")
def want(model: Any, example: Any) -> Any:
    """Prompts of several lengths, and what follows by the reference."""
    prompts = [[int(token) for token in np.random.default_rng(i).integers(3, 262, 3 + 17 * i)] for i in range(5)]
    return prompts, example["references"](model, prompts, TOKENS)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_greedy_tokens_are_those_of_the_reference(model: Any, example: Any, want: Any, device: str) -> None:
    prompts, tokens = want
    assert all(len(found) == TOKENS for found in tokens)
    assert example["found"](model, device, prompts, TOKENS) == tokens


def test_no_token_is_a_matter_of_rounding(model: Any, want: Any) -> None:
    reference = runpy.run_path(str(ROOT / "plugins" / "frontend_gguf" / "tests" / "reference.py"))["Reference"](model)
    margins = []
    for prompt, following in zip(*want, strict=True):
        reference.reset()
        logits = [reference.step(token) for token in [*prompt, *following[:-1]]][len(prompt) - 1 :]
        margins += [np.diff(np.sort(one)[-2:])[0] for one in logits]
    assert len(margins) == 5 * TOKENS
    assert min(margins) > 1e-3


def test_a_question_is_answered_and_remembered(model: Any) -> None:
    command = [sys.executable, "chat.py", "--model", str(model), "-d", "NUMPY", "--tokens", "4"]
    one = subprocess.run([*command, "Hello"], capture_output=True, text=True, cwd=FOLDER, check=True, timeout=120)
    assert one.stdout.count("\n") >= 1
    two = subprocess.run(command, input="Hello\nAgain\n", capture_output=True, text=True, cwd=FOLDER, check=True, timeout=120)
    assert two.stdout.startswith(f"> {one.stdout}> ")
