"""Decoders with GroupQueryAttention, as onnxruntime-genai writes them: what programs that generate text see."""

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

import dovetail
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
    same(ours.step([2], shorter), theirs.step([2], shorter))  # it counts a token less
    assert not session._compiled.plans


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize("room", [0, 16])
@pytest.mark.parametrize("left", [False, True])
def test_texts_of_several_lengths(device: str, room: int, left: bool) -> None:
    """The ones of the mask count the tokens of each text, whose new rows are behind these."""
    data, lengths = grouped_model(), np.array([5, 2, 4])
    ours = dovetail_onnxruntime.InferenceSession(data, providers=[("DovetailExecutionProvider", {"device": device})])
    programs = [Program(one, 3) for one in (ours, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))]
    for program in programs:
        program.caches = {name: np.zeros((3, HEADS, room, SIZE), np.float32) for name in program.caches}
    for step, words in enumerate(([1, 5, 2, 7, 3], [4], [7], [1])):
        total = 5 + step
        columns = np.arange(total)
        mask = (columns >= 5 - lengths[:, None]) if left else (columns < step + lengths[:, None])
        one, other = [program.step(words, mask.astype(np.int64)) for program in programs]
        for text, length in enumerate(lengths):  # what is behind a text's tokens means nothing
            same(one[text, :length], other[text, :length])
            for name, cache in programs[0].caches.items():
                same(cache[text, :, : length + step], programs[1].caches[name][text, :, : length + step])
    assert not ours._compiled.plans


def test_a_compiled_model_has_room_for_each_length() -> None:
    """A plan for one more token is not that of the length before, whose attention has less room."""
    data = grouped_model()
    session, core = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]), dovetail.Core(config=False)
    compiled = core.compile_model(core.read_model(data, format="onnx"))
    names = [output.name for output in session.get_outputs()]
    caches = {name: np.zeros((1, HEADS, 0, SIZE), np.float32) for name in compiled.inputs if name.startswith("past")}
    for total, words in ((30, [1] * 30), (31, [4]), (32, [7]), (33, [3]), (34, [1])):
        feed = {"input_ids": np.array([words]), "attention_mask": np.ones((1, total), np.int64), **caches}
        ours, theirs = dict(compiled(feed)), dict(zip(names, session.run(None, feed), strict=True))
        for name in names:
            same(ours[name], theirs[name])
        caches = {name: ours[name.replace("past_key_values", "present")] for name in caches}


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
    assert not programs[0].session._compiled.plans


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
    assert not programs[0].session._compiled.plans


class _Bound:
    """Runs a session with caches that are bound as inputs and outputs at once."""

    def __init__(self, module: Any, session: Any, caches: dict[str, Any]) -> None:
        self.session, self.caches, self.module = session, caches, module
        self.binding = session.io_binding()
        for name, cache in caches.items():
            value = module.OrtValue.ortvalue_from_numpy(cache)
            self.binding.bind_ortvalue_input(name, value)
            self.binding.bind_ortvalue_output(name.replace("past_key_values", "present"), value)

    def step(self, words: list[int], total: int) -> Any:
        batch = next(iter(self.caches.values())).shape[0]
        self.binding.bind_cpu_input("input_ids", np.array([words] * batch, np.int64))
        self.binding.bind_cpu_input("attention_mask", np.ones((batch, total), np.int64))
        self.binding.bind_output("logits")
        self.session.run_with_iobinding(self.binding)
        return np.array(self.binding.get_outputs()[-1].numpy())


def _bound(session: Any, module: Any, batch: int, room: int) -> _Bound:
    names = [arg.name for arg in session.get_inputs() if arg.name.startswith("past")]
    return _Bound(module, session, {name: np.full((batch, HEADS, room, SIZE), 7, np.float32) for name in names})


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize("batch", [1, 2])
def test_caches_that_are_bound_as_inputs_and_outputs_at_once(device: str, batch: int) -> None:
    """They are read and written in place, and the program may change them between runs."""
    data, room = grouped_model(), 9
    ours = dovetail_onnxruntime.InferenceSession(data, providers=[("DovetailExecutionProvider", {"device": device})])
    sessions = (ours, dovetail_onnxruntime), (onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]), onnxruntime)
    texts = [[_bound(session, module, batch, room) for session, module in sessions] for _ in range(2)]

    def both(text: int, words: list[int], total: int) -> None:
        one, other = texts[text]
        same(one.step(words, total), other.step(words, total))
        for name, cache in one.caches.items():
            same(cache[:, :, :total], other.caches[name][:, :, :total])

    both(0, [1, 5, 2], 3)
    both(0, [4], 4)
    both(1, [3, 3], 2)
    both(0, [6], 5)
    both(1, [2], 3)
    for text in texts[0]:  # the program changes what was written
        for cache in text.caches.values():
            cache[:, :, 1] = 0.5
    both(0, [2], 6)
    both(0, [8], 5)  # and goes back
    both(0, [1, 9], 2)
    assert not ours._compiled.plans


def test_nothing_is_copied_for_caches_that_are_bound_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    session = dovetail_onnxruntime.InferenceSession(grouped_model())
    monkeypatch.setattr("dovetail_onnxruntime.decoder._Text.fill", lambda *_: pytest.fail("caches are copied"))
    text, requests = _bound(session, dovetail_onnxruntime, 1, 9), []
    for total in (1, 2, 3):
        text.step([total], total)
        requests.append(text.binding._bound.text._request)
    assert len({*map(id, requests)}) == 1
    states = requests[0].query_state()
    assert all(states[name] is cache for name, cache in text.caches.items())


def test_caches_that_share_memory_are_copied() -> None:
    """Each would overwrite the other."""
    session = dovetail_onnxruntime.InferenceSession(grouped_model())
    text = _bound(session, dovetail_onnxruntime, 1, 9)
    whole = np.zeros(2 * HEADS * 9 * SIZE, np.float32)
    parts = [whole[start : start + HEADS * 9 * SIZE].reshape(1, HEADS, 9, SIZE) for start in (0, 8)]
    caches = dict(zip(text.caches, [*parts, *[*text.caches.values()][2:]], strict=True))
    text = _Bound(dovetail_onnxruntime, session, caches)
    text.step([1], 1)
    assert text.binding._bound.text is None


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


@pytest.mark.parametrize("room", [0, 16])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_a_choice_by_the_length_of_the_mask(device: str, room: int) -> None:
    """Of rotary embeddings for long texts, in Phi-3 and Phi-4. States have room for more tokens, the mask of a run has not."""
    data = _scaled_by_length("If")
    session = dovetail_onnxruntime.InferenceSession(data, providers=[("DovetailExecutionProvider", {"device": device})])
    programs = [Program(one) for one in (session, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))]
    for text in range(2):
        for program in programs:
            program.caches = {name: np.zeros((1, HEADS, room, SIZE), np.float32) for name in program.caches}
        length = 0
        for words in ([1, 5, 2 + text], [4], [7], [1], [3], [2], [6]):
            length += len(words)
            same(*[program.step(words, np.ones((1, length), np.int64)) for program in programs])
            for name, cache in programs[0].caches.items():
                same(cache[:, :, :length], programs[1].caches[name][:, :, :length])
    assert not session._compiled.plans


def test_a_mask_whose_length_is_read_otherwise() -> None:
    """Each length is planned, because a mask with room is longer."""
    data = _scaled_by_length("Cast")
    session = dovetail_onnxruntime.InferenceSession(data)
    programs = [Program(one) for one in (session, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))]
    for words in ([1, 5, 2], [4], [7]):
        same(*[program.step(words) for program in programs])
    assert session._compiled.plans


def _scaled_by_length(op: str) -> bytes:
    """The decoder with embeddings that are multiplied by a number: of a branch for more than 6 tokens, or of the tokens."""
    model = onnx.load_from_string(grouped_model())
    graph, float32 = model.graph, onnx.TensorProto.FLOAT
    total = next(node for node in graph.node if node.op_type == "Squeeze").output[0]
    place, words = next((i, node) for i, node in enumerate(graph.node) if node.op_type == "Gather")
    read, words.output[0] = words.output[0], "embedded"
    nodes = [helper.make_node("Cast", [total], ["scale"], to=float32)]
    if op == "If":
        graph.initializer.append(onnx.numpy_helper.from_array(np.int64(6), "most"))
        bodies = {}
        for name, value in (("then_branch", 3.0), ("else_branch", 0.5)):
            constant = helper.make_node("Constant", [], [f"{name}_out"], value_float=value)
            bodies[name] = helper.make_graph([constant], name, [], [helper.make_tensor_value_info(f"{name}_out", float32, [])])
        nodes = [
            helper.make_node("Greater", [total, "most"], ["is_long"]),
            helper.make_node("If", ["is_long"], ["scale"], **bodies),
        ]
    for node in (helper.make_node("Mul", ["embedded", "scale"], [read]), *reversed(nodes)):
        graph.node.insert(place + 1, node)
    return bytes(model.SerializeToString())
