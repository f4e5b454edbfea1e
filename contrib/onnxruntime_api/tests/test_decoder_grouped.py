"""Decoders with GroupQueryAttention, as onnxruntime-genai writes them: what programs that generate text see."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import dovetail_onnxruntime

_DECODERS = runpy.run_path(str(Path(__file__).with_name("_decoders.py")))
HEADS, SIZE, grouped_model, Program, same, same_caches = (
    _DECODERS[name] for name in ("HEADS", "SIZE", "grouped_model", "Program", "same", "same_caches")
)


@pytest.mark.parametrize(("batch", "size"), [(1, SIZE), (3, "head_size")])
def test_an_attention_that_writes_into_its_caches(batch: int, size: int | str) -> None:
    data = grouped_model(size)
    session = dovetail_onnxruntime.InferenceSession(data)
    programs = session, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours, theirs = (Program(one, batch) for one in programs)
    several = [[3] * 20] if batch == 1 else []  # ONNX Runtime takes several words for one text only
    for words in ([1, 5, 2], [4], [7], *several, [1]):
        same(ours.step(words), theirs.step(words))
        same_caches(ours, theirs)
    assert not session._compiled.plans  # prompts start texts
    shorter = np.ones((batch, ours.length + 1), np.int64)
    shorter[:, -1] = 0
    ours.step([2], shorter)  # it would count a token less
    assert len(session._compiled.plans) == 1


@pytest.mark.parametrize("batch", [1, 3])
def test_caches_of_one_length(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs give caches for the longest text, and the mask tells how much is in use; then they are longer by each token."""
    monkeypatch.setattr("dovetail_onnxruntime.decoder._ROOM", 8)
    programs = _programs_with_room(batch, 10)
    length = 0
    several = [[7, 3]] if batch == 1 else [[7], [3]]  # ONNX Runtime takes several words for one text only
    for words in ([1, 5, 2], [4], *several, [1], [2], [6], [8]):
        length += len(words)
        found = [program.step(words, np.ones((batch, length), np.int64)) for program in programs]
        same(*found)
        same_caches(*programs)
        assert programs[0].length == 10
    same(*[program.step([5]) for program in programs])
    same_caches(*programs)
    assert len(programs[0].session._compiled.plans) == 1


def test_texts_that_part_in_caches_of_one_length() -> None:
    """A run that continues one of them changes nothing that the other reads."""
    programs = _programs_with_room(1, 10)
    results = []
    for program in programs:
        program.step([1, 5, 2], np.ones((1, 3), np.int64))
        program.step([3], np.ones((1, 4), np.int64))
        begun = program.caches
        results.append([program.step([7], np.ones((1, 5), np.int64))])
        one = program.caches
        results[-1].append(program.step([4], np.ones((1, 5), np.int64), begun))
        other = program.caches
        for caches in (one, other, one):
            results[-1].append(program.step([2], np.ones((1, 6), np.int64), caches))
    for found, want in zip(*results, strict=True):
        same(found, want)
    assert not np.array_equal(results[0][2], results[0][3])
    assert len(programs[0].session._compiled.plans) == 1


def _programs_with_room(batch: int, room: int) -> list[Any]:
    data = grouped_model()
    sessions = dovetail_onnxruntime.InferenceSession(data), onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    programs = [Program(session, batch) for session in sessions]
    for program in programs:
        program.caches = {name: np.zeros((batch, HEADS, room, SIZE), np.float32) for name in program.caches}
    return programs


def test_caches_of_a_window_do_not_grow() -> None:
    """Those of one layer have the length of its window, those of the other are longer by each token."""
    model = onnx.load_from_string(grouped_model())
    node = next(node for node in model.graph.node if node.op_type == "GroupQueryAttention")
    node.attribute.extend(
        helper.make_attribute(name, value) for name, value in (("local_window_size", 4), ("sliding_window_cache", 1))
    )
    for info in (*model.graph.input, *model.graph.output):
        if ".0." in info.name:
            info.type.tensor_type.shape.dim[2].dim_param = "sliding"
    data = model.SerializeToString()
    session = dovetail_onnxruntime.InferenceSession(data)
    programs = [Program(one) for one in (session, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))]
    for program in programs:
        program.caches |= {f"past_key_values.0.{kind}": np.zeros((1, HEADS, 4, SIZE), np.float32) for kind in ("key", "value")}
    length = 0
    for words in ([1, 5, 2], [4], [7], [1], [3]):
        length += len(words)
        found = [program.step(words, np.ones((1, length), np.int64)) for program in programs]
        same(*found)
    assert not session._compiled.plans
