"""Models whose states grow with each run: logits after texts of any lengths, against sums in float64."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import UsageError
from dovetail.graph import Model
from dovetail.graph.growth import Grown, Growth
from dovetail_generate import TextGenerator
from dovetail_generate.growing import GrowingDecoding
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.unsqueeze import Unsqueeze

TABLE = np.random.default_rng(4).standard_normal((20, 6)).astype(np.float32)
"""The numbers of each token, which are its logits, too."""


def _decoder(*, has_mask: bool = True) -> Model:
    """logits: the sum of all tokens' numbers times 1 + their position, those that the mask hides left out."""
    g = dovetail.GraphBuilder()
    ids, positions = g.input("input_ids", "int64", ("b", "n")), g.input("position_ids", "int64", ("b", "n"))
    past, last = g.input("past", "float32", ("b", "p", 6)), g.constant([-1], "int64")
    strength = g.node(Add(), g.node(Cast(to="float32"), positions), g.constant(1, "float32"))
    rows = g.node(Mul(), g.node(Gather(), g.constant(TABLE), ids), g.node(Unsqueeze(), strength, last))
    present = g.node(Concat(axis=1), past, rows, outputs=["present"])
    if has_mask:
        mask = g.node(Cast(to="float32"), g.input("attention_mask", "int64", ("b", "t")))
        present = g.node(Mul(), present, g.node(Unsqueeze(), mask, last))
    total = g.node(ReduceSum(), present, g.constant([1], "int64"))
    g.node(MatMul(), total, g.constant(TABLE.T.copy()), outputs=["logits"])
    growth = Growth({"past": Grown("past", "present")}, 1, "input_ids", "attention_mask" if has_mask else "")
    return replace(g.model(["present", "logits"]).with_states("past:present"), growth=growth)


def _expected(texts: list[list[int]]) -> Any:
    return np.stack([(np.arange(1, len(text) + 1) @ TABLE[text].astype(np.float64)) @ TABLE.T for text in texts])


def _decoding(texts: int, **how: Any) -> GrowingDecoding:
    return GrowingDecoding(dovetail.Core(), _decoder(**how), "NUMPY", texts, 300, {})


@pytest.mark.parametrize(
    "calls",
    [
        [[[3, 4, 5]], [[3, 4, 5, 6]], [[3, 4, 5, 6, 7, 8]], [[3, 4, 5, 6, 7, 8]], [[3, 4, 1]], [[9]]],
        [[[3, 4], [1]], [[3, 4, 6], [1, 7]], [[3, 4, 6], [1, 7, 8]], [[3, 4, 6], [1, 7, 8, 9]], [[3, 4, 6, 2], [1, 7, 8, 9, 3]]],
        [[[2] * 260, [5] * 3], [[2] * 261, [5] * 4], [[2] * 262, [5] * 6]],
    ],
    ids=["one text", "texts that end", "parts of a prompt"],
)  # fmt: skip
def test_logits_of_texts_that_go_on_or_begin_anew(calls: list[list[list[int]]]) -> None:
    decoding = _decoding(len(calls[0]))
    for texts in calls:
        found, wanted = decoding.logits(texts), _expected(texts)
        shown = [index for index in range(len(texts)) if index not in decoding._ended]
        np.testing.assert_allclose(found[shown], wanted[shown], rtol=1e-4, atol=1e-3)
    decoding.close()


def test_texts_that_go_on_run_by_their_new_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, run = [], GrowingDecoding._run
    monkeypatch.setattr(GrowingDecoding, "_run", lambda self, ids, mask: sizes.append(ids.shape) or run(self, ids, mask))
    decoding = _decoding(2)
    for texts in ([[3, 4, 5], [1]], [[3, 4, 5, 6], [1, 7]], [[3, 4, 5, 6], [1, 7, 8]], [[3, 4, 5, 6, 2], [1, 7, 8]]):
        decoding.logits(texts)
    assert sizes == [(2, 3), (2, 1), (2, 1), (2, 5)]
    assert decoding.device == "NUMPY"


def test_a_generator_runs_them(generator: Any, tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    generator.tokens.tokenizer.save(str(file))
    prompts = [[3, 4, 5], [1]]
    generator = TextGenerator(_decoder(), "NUMPY", tokenizer=file)
    texts = [list(prompt) for prompt in prompts]
    for piece in generator.generate(prompts, limit=6, ends=False):
        texts[piece.index].append(piece.token)
    for _ in range(6):
        prompts = [[*text, int(logits.argmax())] for text, logits in zip(prompts, _expected(prompts), strict=True)]
    assert texts == prompts
    with pytest.raises(UsageError, match="lookup needs caches with room"):
        list(generator.generate([[3, 4]], lookup=2))
    with pytest.raises(UsageError, match="a text has 0 tokens; accepted: 1 to 2048"):
        list(generator.generate([[]]))


def test_prompts_of_other_lengths_need_a_mask() -> None:
    decoding = _decoding(2, has_mask=False)
    np.testing.assert_allclose(decoding.logits([[3, 4], [5, 6]]), _expected([[3, 4], [5, 6]]), rtol=1e-4, atol=1e-3)
    with pytest.raises(UsageError, match="2 prompts of 1 to 2 tokens"):
        decoding.logits([[3, 4], [5]])


def test_other_inputs_are_refused() -> None:
    g = dovetail.GraphBuilder()
    sides = [g.input(name, "float32", ("b", "p", 6)) for name in ("past", "pixels")]
    g.node(Concat(axis=1), *sides, outputs=["present"])
    model = g.model(["present"]).with_states("past:present")
    model = replace(model, growth=Growth({"past": Grown("past", "present")}, 1, "input_ids"))
    with pytest.raises(UsageError, match="has the inputs pixels and the outputs"):
        GrowingDecoding(dovetail.Core(), model, "NUMPY", 1, 9, {})
