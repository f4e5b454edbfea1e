"""Decoders with caches that grow by Concat: as states they give what the unchanged graph gives, or are refused with a reason."""

import functools
import runpy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.errors import InferError, UsageError
from dovetail.graph import DType, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.unsqueeze import Unsqueeze

_decoders = runpy.run_path(str(Path(__file__).with_name("_decoders.py")))
Decoder, KV, LAYERS, ROOM, SIZE, WORDS = map(_decoders.__getitem__, ("Decoder", "KV", "LAYERS", "ROOM", "SIZE", "WORDS"))
STATES = "past_key_values.*:present.*"


def _inputs(model: Model, tokens: Any, lengths: Any, total: int) -> dict[str, Any]:
    mask = np.zeros((len(tokens), total), np.int64)
    for row, length in zip(mask, lengths, strict=True):
        row[:length] = 1
    found = {"input_ids": tokens}
    if "attention_mask" in model.graph.inputs:
        found["attention_mask"] = mask
    if "cache_length" in model.graph.inputs:
        found["cache_length"] = np.array(lengths[:1])
    if "position_ids" in model.graph.inputs:
        first = np.maximum(np.array(lengths) - tokens.shape[1], 0)
        found["position_ids"] = first[:, None] + np.arange(tokens.shape[1])
    return found


def _growing(core: Any, model: Model, tokens: Any, parts: list[int]) -> tuple[list[Any], dict[str, Any]]:
    """Logits after each part by the unchanged graph, with its caches in the last results."""
    compiled = core.compile_model(model, "NUMPY")
    batch, at, logits = len(tokens), 0, []
    pasts = {n: np.zeros((batch, KV, 0, SIZE), np.float32) for n in model.graph.inputs if n.startswith("past")}
    for count in parts:
        rows = tokens[:, at : at + count]
        at += count
        results = compiled({**_inputs(model, rows, [at] * batch, at), **pasts})
        pasts = {name: results[name.replace("past_key_values", "present")] for name in pasts}
        logits.append(results["logits"])
    return logits, pasts


def _held(core: Any, model: Model, batch: int, device: str = "NUMPY", room: int = ROOM) -> Any:
    sizes = {n: (batch, KV, room, SIZE) for n in model.graph.inputs if n.startswith("past")}
    if "attention_mask" in model.graph.inputs:
        sizes["attention_mask"] = (batch, room)
    return core.compile_model(model.reshape(sizes), device, {"STATE": STATES})


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "chosen", "attended"])
def test_results_are_those_of_the_unchanged_graph(core: Any, attention: str, batch: int, device: str) -> None:
    model = Decoder(attention=attention).model
    tokens, parts = np.random.default_rng(1).integers(0, WORDS, (batch, ROOM)), [5, 1, 1, 1, 5, 1, 5, 1, 1, 1, 1]
    want, caches = _growing(core, model, tokens, parts)
    with _held(core, model, batch, device) as compiled:
        assert list(compiled.outputs) == ["logits"]
        request = compiled.create_infer_request()
        for _ in range(2):
            _compare(request, model, tokens, parts, want)
            # Full caches hold what the unchanged graph gives; the second text overwrites that of the first.
            for name, array in request.query_state().items():
                np.testing.assert_allclose(array, caches[name], rtol=1e-4, atol=1e-5)
        assert len(compiled.plans) == 2
        assert [one.changed for one in compiled.report().passes if one.name == "hold_caches"] == [True]
        ops = [node.op for node in compiled.report().nodes]
        assert (ops.count("TensorScatter"), ops.count("Concat")) == (4, 0)


def test_texts_of_several_lengths(core: Any) -> None:
    _texts_of_several_lengths(core, Decoder().model)


def _texts_of_several_lengths(core: Any, model: Model) -> None:
    tokens, lengths = np.random.default_rng(2).integers(0, WORDS, (3, 12)), [2, 7, 5]
    alone = []
    for row, length in zip(tokens, lengths, strict=True):
        logits, _ = _growing(core, model, row[None], [length, 1, 1])
        alone.append([logits[0][0, -1], logits[1][0, -1], logits[2][0, -1]])
    with _held(core, model, 3) as compiled:
        request = compiled.create_infer_request()
        # Shorter prompts are filled up behind their tokens.
        filled = np.where(np.arange(7) < np.array(lengths)[:, None], tokens[:, :7], 3)
        first = request.infer(_inputs(model, filled, lengths, ROOM))["logits"]
        found = [[first[i, length - 1] for i, length in enumerate(lengths)]]
        for step in range(2):
            rows = np.array([[row[length + step]] for row, length in zip(tokens, lengths, strict=True)])
            found.append(list(request.infer(_inputs(model, rows, [n + step + 1 for n in lengths], ROOM))["logits"][:, 0]))
        np.testing.assert_allclose(np.swapaxes(found, 0, 1), alone, rtol=1e-4, atol=1e-4)


def test_a_model_without_mask_sees_only_what_is_in_use(core: Any) -> None:
    model = Decoder(attention="linear").model
    tokens = np.random.default_rng(3).integers(0, WORDS, (2, 6))
    want, _ = _growing(core, model, tokens, [1] * 6)
    with _held(core, model, 2) as compiled:
        request = compiled.create_infer_request()
        for at in range(6):
            found = request.infer(_inputs(model, tokens[:, at : at + 1], [at + 1] * 2, ROOM))["logits"]
            np.testing.assert_allclose(found, want[at], rtol=1e-4, atol=1e-4)


def _same_as_growing(core: Any, options: Any, batch: int, device: str, parts: list[int]) -> None:
    """Two texts one after the other, by states and by the unchanged graph. Those states are all in use at the end."""
    model = Decoder(**options).model
    tokens = np.random.default_rng(7).integers(0, WORDS, (batch, ROOM))
    want, caches = _growing(core, model, tokens, parts)
    with _held(core, model, batch, device) as compiled:
        request = compiled.create_infer_request()
        for _ in range(2):
            _compare(request, model, tokens, parts, want)
        for name, array in request.query_state().items():
            np.testing.assert_allclose(array[:, :, : sum(parts)], caches[name], rtol=1e-4, atol=1e-5)
        assert len(compiled.plans) == len({*parts})


def _compare(request: Any, model: Model, tokens: Any, parts: list[int], want: Any) -> None:
    """A text for each row of tokens, in parts, from empty caches: its logits are those wanted."""
    at = 0
    for count, logits in zip(parts, want, strict=True):
        rows = tokens[:, at : at + count]
        at += count
        inputs = _inputs(model, rows, [at] * len(tokens), ROOM)
        if "cache_length" in inputs and "attention_mask" in inputs:
            inputs["attention_mask"] = inputs["attention_mask"][:, ::-1]
        np.testing.assert_allclose(request.infer(inputs)["logits"], logits, rtol=1e-4, atol=1e-4)


def test_an_attention_with_a_cast_becomes_one_node(core: Any) -> None:
    model = Decoder(attention="cast").model
    tokens = np.random.default_rng(1).integers(0, WORDS, (1, 4))
    want, _ = _growing(core, model, tokens, [4])
    with _held(core, model, 1, "ONEDNN") as compiled:
        found = compiled.create_infer_request().infer(_inputs(model, tokens, [4], ROOM))["logits"]
        np.testing.assert_allclose(found, want[0], rtol=1e-4, atol=1e-4)
        assert [node.op for node in compiled.report().nodes].count("Attention") == LAYERS


@pytest.mark.parametrize(
    "given", [{}, {"counted": True}, {"counted": True, "masked": False}], ids=["by_mask", "by_lengths", "without_mask"]
)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("attention", ["eager", "apart", "by_key", "by_part"])
def test_lengths_that_the_graph_takes_from_its_caches(core: Any, attention: str, batch: int, given: Any) -> None:
    options = {"attention": attention, "positions": "from_caches", **given}
    _same_as_growing(core, options, batch, "NUMPY", [3, 1, 1, 5, 1, 1, 1, 1, 1, 3, 1, 1])


@pytest.mark.parametrize("masked", [True, False])
def test_texts_and_heads_in_one_dimension(core: Any, masked: bool) -> None:
    """That takes one order of keys for all texts."""
    options = {"attention": "flat", "positions": "from_caches", "masked": masked, "counted": True}
    _same_as_growing(core, options, 3, "NUMPY", [3, 1, 1, 5, 1])


@pytest.mark.parametrize("device", ["ONEDNN", "OPENCL.0"])
def test_lengths_on_other_devices(core: Any, device: str) -> None:
    _same_as_growing(core, {"attention": "by_key", "positions": "from_caches"}, 1, device, [3, 1, 1, 5, 1])


@pytest.mark.parametrize(("batch", "operators"), [(1, []), (3, ["dovetail::ByLength"])])
def test_positions_of_one_text_are_computed_by_the_nodes_of_the_graph(core: Any, batch: int, operators: list[str]) -> None:
    """So the device computes them, and states never leave it. Several texts might have different lengths, which is an error."""
    model = Decoder(positions="from_caches").model
    with _held(core, model, batch, "OPENCL.0") as compiled:
        compiled.create_infer_request().infer(_inputs(model, np.ones((batch, 1), np.int64), [4] * batch, ROOM))
        nodes = compiled.report().nodes
    assert [node.op for node in nodes if "ByLength" in node.op] == operators
    assert ({node.device for node in nodes} == {"OPENCL.0"}) is (batch == 1)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("given", [{}, {"counted": True}], ids=["by_mask", "by_lengths"])
def test_positions_that_are_cut_from_sums_of_the_mask(core: Any, given: Any, batch: int) -> None:
    """As in OPT: the mask's cumulative sum, from the length of the caches on."""
    _same_as_growing(core, {"positions": "from_mask", **given}, batch, "NUMPY", [3, 1, 1, 5, 1])


def test_positions_of_the_mask_for_texts_of_several_lengths(core: Any) -> None:
    _texts_of_several_lengths(core, Decoder(positions="from_mask").model)


def _scaled(steps: Sequence[int], self: Any, y: str, keys: str, layer: int) -> str:
    """By the tokens times these numbers in one layer, by their square in the other, which increases unevenly."""
    numbers = self.g.node(Mul(), self.total, self.total if layer else self.ints(*steps))
    parts = self.g.node(Mul(), self.g.node(Cast(to=DType.FLOAT32), numbers), self.g.constant(1 / 64, "float32"))
    return self.g.node(Mul(), y, self.g.node(ReduceSum(keepdims=False), parts))


@pytest.mark.parametrize(
    "options",
    [{"copy": Identity()}, {"copy": Cast(to=DType.FLOAT32)}, {"copy": Cast(to=DType.FLOAT32), "half": True}],
    ids=["Identity", "Cast", "half"],
)
def test_caches_that_are_copied_to_outputs(core: Any, options: Any) -> None:
    _same_as_growing(core, options, 2, "NUMPY", [3, 1, 1, 5, 1])


def _counted(self: Any, y: str, keys: str, layer: int) -> str:
    return self.g.node(Mul(), y, self.g.node(Cast(to=DType.FLOAT32), self.total))


@pytest.mark.parametrize("steps", [[3], [-2], [1, 2], None], ids=["evenly", "down", "unevenly", "tokens"])
def test_numbers_that_change_with_the_length(core: Any, steps: Sequence[int] | None) -> None:
    keep, batch = (functools.partial(_scaled, steps), 1) if steps else (_counted, 2)
    _same_as_growing(core, {"keep": keep}, batch, "NUMPY", [3, 1, 1, 5, 1])


def test_positions_of_texts_of_several_lengths_are_refused(core: Any) -> None:
    """The unchanged graph has one length for all texts."""
    model = Decoder(positions="from_caches").model
    request = _held(core, model, 2).create_infer_request()
    with pytest.raises(InferError, match=r"the texts have \[4, 3\] tokens; accepted: equal numbers"):
        request.infer(_inputs(model, np.ones((2, 1), np.int64), [4, 3], ROOM))


def test_a_mask_with_zeros_at_its_start_and_in_it(core: Any) -> None:
    model, rng = Decoder(counted=True).model, np.random.default_rng(8)
    mask, tokens = np.ones((2, 9), np.int64), rng.integers(0, WORDS, (2, 9))
    mask[0, :3], mask[1, 5] = 0, 0
    alone = core.compile_model(model, "NUMPY")
    pasts = {n: np.zeros((2, KV, 0, SIZE), np.float32) for n in model.graph.inputs if n.startswith("past")}
    with _held(core, model, 2) as compiled:
        request = compiled.create_infer_request()
        for start, end in ((0, 6), (6, 7), (7, 9)):
            inputs = {**_inputs(model, tokens[:, start:end], [end] * 2, end), "attention_mask": mask[:, :end]}
            results = alone({**inputs, **pasts})
            pasts = {name: results[name.replace("past_key_values", "present")] for name in pasts}
            padded = np.concatenate([np.zeros((2, ROOM - end), np.int64), mask[:, :end]], axis=1)
            found = request.infer({**inputs, "attention_mask": padded})["logits"]
            seen = mask[:, start:end] == 1  # rows of hidden tokens of texts see no key at all
            np.testing.assert_allclose(found[seen], results["logits"][seen], rtol=1e-4, atol=1e-4)


def _summed(self: Any, y: str, keys: str, layer: int) -> str:
    rows = self.g.node(ReduceSum(), keys, self.ints(2))
    return self.g.node(Add(), y, self.g.node(ReduceSum(), rows, self.ints(1)))


def _past_alone(self: Any, y: str, keys: str, layer: int) -> str:
    return self.g.node(Add(), y, self.g.node(ReduceSum(), self.pasts[layer][0], self.ints(1, 2)))


def _by_other_weights(self: Any, y: str, keys: str, layer: int) -> str:
    q = self.g.node(Identity(), y)
    shared = self.shared(keys)
    return self.g.node(MatMul(), self.scores(q, shared), shared)


def _by_place(self: Any, y: str, keys: str, layer: int) -> str:
    places = self.g.node(Mul(), self.squares, self.g.node(Cast(to=DType.FLOAT32), self.mask))
    return self.g.node(Mul(), y, self.g.node(Unsqueeze(), self.g.node(ReduceSum(), places, self.ints(1)), self.ints(1, 2)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep": _summed}, r"node '\w+' \(ReduceSum\) reads cached keys or values"),
        ({"keep": _past_alone}, r"reads a cache without its new rows"),
        ({"keep": _by_other_weights}, "sums cached values by other weights than those of a Softmax"),
        ({"keep": _by_place}, "takes a number for each cached key, computed from the length of the caches"),
        ({"masked": False}, r"the input 'attention_mask' \[batch, length\] is missing"),
        ({"attention": "by_index"}, "counts cached keys from the first one, 'range_2:0' from where there is room"),
        ({"attention": "flat"}, "has the batch in the dimension of the heads; accepted: one text at once"),
    ],
    ids=["summed", "past_alone", "other_weights", "by_place", "without_mask", "by_index", "flat"],
)
def test_other_graphs_are_refused_with_the_reason(core: Any, options: Any, message: str) -> None:
    model = Decoder(**options).model
    request = _held(core, model, 2).create_infer_request()
    with pytest.raises(UsageError, match=f"'past_key_values.0.key' cannot be a state: .*{message}") as caught:
        request.infer(_inputs(model, np.ones((2, 2), np.int64), [2, 2], ROOM))
    assert "leave the property STATE out" in caught.value.hint
    logits, _ = _growing(core, model, np.ones((2, 3), np.int64), [2, 1])
    assert np.isfinite(logits[1]).all()
