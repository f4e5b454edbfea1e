"""Decoders whose caches grow by each token: what programs that generate text see, on onnxruntime and on dovetail."""

import logging
import runpy
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail_onnxruntime
from dovetail_onnxruntime import decoder

_DECODERS = runpy.run_path(str(Path(__file__).with_name("_decoders.py")))
_NAMES = ("HEADS", "SIZE", "WORDS", "LAYERS", "decoder_model", "grouped_model", "Program", "same", "same_caches")
HEADS, SIZE, WORDS, LAYERS, decoder_model, grouped_model, Program, same, same_caches = (_DECODERS[name] for name in _NAMES)


@pytest.fixture
def peer() -> Any:
    """A session of onnxruntime with the model."""
    return _peer(decoder_model())


def _peer(model: bytes) -> Any:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])


@pytest.fixture
def session() -> Any:
    return dovetail_onnxruntime.InferenceSession(decoder_model())


@pytest.mark.parametrize("batch", [1, 3])
def test_text_is_generated_word_by_word_without_new_plans(session: Any, peer: Any, batch: int) -> None:
    ours, theirs = Program(session, batch), Program(peer, batch)
    same(ours.step([1, 5, 2]), theirs.step([1, 5, 2]))
    for word in (4, 7, 1, 12, 3, 9):
        same(ours.step([word]), theirs.step([word]))
        same_caches(ours, theirs)
    assert len(session._compiled.plans) == 1  # of the prompt
    assert len(session._decoder._texts[-1].held.compiled.plans) == 1


def test_caches_of_the_run_before_are_not_copied(session: Any) -> None:
    program = Program(session)
    program.step([1, 2])
    program.step([3])
    before = program.caches
    program.step([4])
    assert all(np.shares_memory(before[name], cache) for name, cache in program.caches.items())


def test_several_words_in_a_run(session: Any, peer: Any) -> None:
    ours, theirs = Program(session), Program(peer)
    for words in ([1, 5, 2], [4, 4], [7], [1, 2, 3], [9]):
        same(ours.step(words), theirs.step(words))
    same_caches(ours, theirs)


def test_two_texts_that_begin_alike(session: Any, peer: Any) -> None:
    """As in a search with several beams: the same caches are given twice, and all results are still there at the end."""
    found = []
    for one in (session, peer):
        program = Program(one)
        program.step([1, 5])
        program.step([2])
        start = dict(program.caches)
        first = [program.step([3], caches=start), dict(program.caches)]
        second = [program.step([4], caches=start), dict(program.caches)]
        third = [program.step([6], caches=first[1]), dict(program.caches)]
        found.append([first, second, third, ["", start]])
    for ours, theirs in zip(*found, strict=True):
        if ours[0] is not ours[1] and not isinstance(ours[0], str):
            same(ours[0], theirs[0])
        for name, cache in ours[1].items():
            same(cache, theirs[1][name])


def test_texts_in_turn_and_caches_that_the_program_copies(session: Any, peer: Any) -> None:
    ours, theirs = ([Program(one) for _ in range(6)] for one in (session, peer))
    for turn in range(5):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            words = [(index + turn) % WORDS] * (1 + (turn == 0) * index)
            if turn == 3:
                one.caches = {name: np.array(cache) for name, cache in one.caches.items()}
            same(one.step(words), other.step(words))
    for one, other in zip(ours, theirs, strict=True):
        same_caches(one, other)


def test_a_text_that_needs_more_room(session: Any, peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder, "_ROOM", 4)
    ours, theirs = Program(session), Program(peer)
    for word in range(20):
        same(ours.step([word % WORDS]), theirs.step([word % WORDS]))
    same_caches(ours, theirs)
    assert session._decoder._texts[-1].held.room == 64


def test_batches_of_other_sizes_keep_their_plans(session: Any, peer: Any) -> None:
    """Each number of texts has a model with states, which is there when as many texts come again."""
    known: list[Any] = []
    for turn, batch in enumerate((1, 3, 1, 2, 3, 1)):
        ours, theirs = Program(session, batch), Program(peer, batch)
        for words in ([turn, 5, 2], [4], [7]):
            same(ours.step(words), theirs.step(words))
        same_caches(ours, theirs)
        known.append(session._decoder._texts[-1].held.compiled)
    assert len(set(known)) == 3
    assert [len(compiled.plans) for compiled in known] == [1] * 6


def test_masks_with_zeros(session: Any, peer: Any) -> None:
    """The second text is shorter, filled up in front, and a word in the middle of the third one is hidden."""
    ours, theirs = Program(session, 3), Program(peer, 3)
    for count in (5, 1, 1, 2, 1):
        total = ours.length + count
        mask = np.ones((3, total), np.int64)
        mask[1, :2], mask[2, 3] = 0, 0
        same(ours.step([2] * count, mask), theirs.step([2] * count, mask))
    same_caches(ours, theirs)
    assert len(session._compiled.plans) == 1


@pytest.mark.parametrize(
    "others", [{}, {"attention_mask": "mask"}, {"input_ids": "tokens"}, {"attention_mask": "m", "input_ids": "w"}]
)
@pytest.mark.parametrize("make", [decoder_model, grouped_model])
def test_other_names(make: Any, others: dict[str, str]) -> None:
    """Caches as PyTorch's newer exporter names them, outputs by the operator; the mask and the words as a program likes."""
    import onnx

    model = onnx.load_from_string(make())
    peer = _peer(model.SerializeToString())
    caches = [value.name for value in model.graph.input if value.name.startswith("past")]
    names = {name: name.replace(".", "_").replace("key_values", "in") for name in caches}
    names |= {name.replace("past_key_values", "present"): f"cat_{index}" for index, name in enumerate(caches)} | others
    _rename(model, names)
    session = dovetail_onnxruntime.InferenceSession(model.SerializeToString())
    theirs, given = Program(peer), {name: np.zeros((1, HEADS, 0, SIZE), np.float32) for name in caches}
    outputs = [arg.name for arg in session.get_outputs()]
    for words in ([1, 5, 2], [4], [7], [3], [3]):
        feed = {
            "input_ids": np.array([words]),
            "attention_mask": np.ones((1, theirs.length + len(words)), np.int64),
            "position_ids": np.arange(theirs.length, theirs.length + len(words))[None],
            **given,
        }
        found = dict(zip(outputs, session.run(None, {names.get(n, n): feed[n] for n in theirs.inputs}), strict=True))
        given = {name: found[names[name.replace("past_key_values", "present")]] for name in caches}
        same(found["logits"], theirs.step(words))
    assert len(session._compiled.plans) == (make is decoder_model)  # a grouped model needs none for its prompt


def test_an_input_as_long_as_a_mask_that_is_none(peer: Any) -> None:
    """The mean of all words so far is another one with zeros before them."""
    import onnx

    model = onnx.load_from_string(decoder_model())
    _rename(model, {"attention_mask": "history", "logits": "before"})
    mean = [
        helper.make_node("Cast", ["history"], ["numbers"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["numbers"], ["mean"], keepdims=0),
        helper.make_node("Add", ["before", "mean"], ["logits"]),
    ]
    model.graph.node.extend(mean)
    model.graph.output[0].name = "logits"
    session, theirs = dovetail_onnxruntime.InferenceSession(model.SerializeToString()), Program(peer)
    given = dict(theirs.caches)
    for words in ([1, 5, 2], [4], [7]):
        total = theirs.length + len(words)
        feed = {"input_ids": np.array([words]), "position_ids": np.arange(theirs.length, total)[None]}
        found = session.run(None, {**feed, "history": np.ones((1, total), np.int64), **given})
        given = dict(zip(given, found[1:], strict=True))
        same(found[0], theirs.step(words) + 1)


def _rename(model: Any, names: dict[str, str]) -> None:
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        for ports in (node.input, node.output):
            ports[:] = [names.get(name, name) for name in ports]


def test_memory_is_used_again_when_nobody_has_it(session: Any, peer: Any) -> None:
    ours, theirs = Program(session), Program(peer)
    for program in (ours, theirs):
        program.step([1, 5])
        program.step([2])
    kept = {name: cache[:, 1:, :, ::2].T for name, cache in ours.caches.items()}
    before = {name: cache.copy() for name, cache in kept.items()}
    texts = []
    for word in (3, 4, 9, 2):
        for program in (ours, theirs):
            program.caches = {name: cache.copy() for name, cache in program.caches.items()}
        same(ours.step([word]), theirs.step([word]))
        texts.append(session._decoder._texts[-1])
    assert texts[0] is not session._decoder._texts[0]  # views of its arrays are left
    assert texts[1] is texts[2] is texts[3]
    for name, cache in kept.items():
        np.testing.assert_array_equal(cache, before[name])


def test_what_is_left_of_a_forgotten_text_changes_nothing(session: Any, peer: Any) -> None:
    """An infinity that has the weight 0 would be NaN."""
    ours = Program(session)
    ours.step([1, 5, 2, 4])
    ours.step([7])
    ours.caches = {name: np.full_like(cache, np.inf) for name, cache in ours.caches.items()}
    with np.errstate(invalid="ignore"):
        ours.step([2])
    text, theirs = session._decoder._texts[-1], Program(peer)
    ours.caches = ours.empty()
    for words in ([3], [8], [6]):
        same(ours.step(words), theirs.step(words))
    assert session._decoder._texts[-1] is text


def test_a_text_belongs_to_one_run_at_a_time(session: Any, peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Program(session), Program(peer)
    for program in (ours, theirs):
        program.step([1, 5])
        program.step([2])
    start, run, used, inner = dict(ours.caches), decoder._Text.run, [], Program(session)

    def noted(text: Any, feed: Any, step: Any) -> Any:
        used.append(text)
        if len(used) == 1:  # as another thread
            same(inner.step([5], caches=start), Program(peer).step([5], caches=dict(theirs.caches)))
        return run(text, feed, step)

    monkeypatch.setattr(decoder._Text, "run", noted)
    same(ours.step([3]), theirs.step([3]))
    same_caches(ours, theirs)
    assert used[0] is not used[1]


@pytest.mark.parametrize("surplus", [1, -1])
def test_lengths_that_contradict_each_other_are_refused(session: Any, surplus: int) -> None:
    program = Program(session)
    program.step([1, 5, 2])
    program.step([3, 4])
    with pytest.raises(Exception, match="do not broadcast"):
        program.step([4, 6], mask=np.ones((1, program.length + 2 + surplus), np.int64))


def test_threads_generate_at_the_same_time(session: Any, peer: Any) -> None:
    wanted = Program(peer)
    expected = [wanted.step([word]) for word in range(1, 9)]
    found: dict[int, list[Any]] = {}

    def generate(index: int) -> None:
        program = Program(session)
        found[index] = [program.step([word]) for word in range(1, 9)]

    threads = [threading.Thread(target=generate, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for one in found.values():
        for ours, theirs in zip(one, expected, strict=True):
            same(ours, theirs)


@pytest.mark.parametrize("batch", [1, 3])
def test_positions_that_the_model_counts_itself(batch: int) -> None:
    """By the size of a cache; it has fewer positions than a cache has room."""
    import onnxruntime

    data = decoder_model(positions=False)
    session = dovetail_onnxruntime.InferenceSession(data)
    programs = session, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    for start in (3, 5):
        ours, theirs = (Program(one, batch) for one in programs)
        for words in (list(range(start)), [4], [7], [1, 2], [1]):
            same(ours.step(words), theirs.step(words))
        same_caches(ours, theirs)
    assert len(session._compiled.plans) == 2  # of the prompts
    assert len(session._decoder._texts[-1].held.compiled.plans) == 2


@pytest.mark.parametrize(
    ("copied_by", "table", "room"), [("Cast", 0, 256), ("Identity", 0, 256), ("half", 0, 256), ("Cast", 128, 128)]
)
def test_caches_that_are_copied_and_masks_from_a_table(copied_by: str, table: int, room: int) -> None:
    """Caches have room for no more tokens than the table."""
    import onnxruntime

    data = decoder_model(table=table, copied_by=copied_by)
    session = dovetail_onnxruntime.InferenceSession(data, providers=[("DovetailExecutionProvider", {"device": "ONEDNN"})])
    ours, theirs = Program(session), Program(onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))
    for words in ([1, 5, 2], [4], [7], [1, 2], [1]):
        same(ours.step(words), theirs.step(words))
    same_caches(ours, theirs)
    assert len(session._compiled.plans) == 1  # of the prompt
    assert session._decoder._texts[-1].held.room == room


def test_a_model_that_does_more_with_its_caches_than_attention(caplog: pytest.LogCaptureFixture) -> None:
    import onnx
    import onnxruntime

    model = onnx.load_from_string(decoder_model())
    summed = helper.make_node("ReduceMax", ["present.0.key"], ["largest"], keepdims=0)
    model.graph.node.append(summed)
    model.graph.output.append(helper.make_tensor_value_info("largest", TensorProto.FLOAT, []))
    data = model.SerializeToString()
    caplog.set_level(logging.INFO, "dovetail")
    session = dovetail_onnxruntime.InferenceSession(data)
    ours, theirs = Program(session), Program(onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]))
    for words in ([1, 5, 2], [4], [7], [1]):
        same(ours.step(words), theirs.step(words))
    assert len(session._compiled.plans) == 4
    assert sum("each length of the caches is planned anew" in record.message for record in caplog.records) == 1


def test_values_of_bindings(session: Any, peer: Any) -> None:
    programs = []
    for one in (session, peer):
        program = Program(one)
        program.step([1, 5])
        for word in (3, 4):
            binding = one.io_binding()
            feed = {
                "input_ids": np.array([[word]]),
                "attention_mask": np.ones((1, program.length + 1), np.int64),
                "position_ids": np.array([[program.length]]),
                **program.caches,
            }
            for name, value in feed.items():
                binding.bind_cpu_input(name, value)
            for name in program.outputs:
                binding.bind_output(name)
            one.run_with_iobinding(binding)
            results = dict(zip(program.outputs, binding.copy_outputs_to_cpu(), strict=True))
            program.caches = {name: results[name.replace("past_key_values", "present")] for name in program.caches}
        programs.append(program)
    same_caches(*programs)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL.0"])
def test_on_each_device(peer: Any, device: str) -> None:
    session = dovetail_onnxruntime.InferenceSession(
        decoder_model(), providers=[("DovetailExecutionProvider", {"device": device})]
    )
    ours, theirs = Program(session), Program(peer)
    for words in ([1, 5, 2], [4], [7], [1]):
        same(ours.step(words), theirs.step(words))
    same_caches(ours, theirs)


def test_profiles_have_the_nodes_of_such_runs(tmp_path: Any) -> None:
    import json

    options = dovetail_onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "p")
    session = dovetail_onnxruntime.InferenceSession(decoder_model(), options)
    program = Program(session)
    for words in ([1, 5, 2], [4], [7]):
        program.step(words)
    with open(session.end_profiling(), encoding="utf-8") as file:
        events = json.load(file)
    assert sum(event["cat"] == "Node" and event["args"]["op_name"] == "TensorScatter" for event in events) == 2 * 2 * LAYERS


def test_caches_in_the_memory_of_a_device_stay_there(peer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """New rows come to the host, in arrays that nobody else writes: what a program wrote there would not be read."""
    from dovetail import InferRequest

    brought = []
    own = InferRequest.query_state

    def query(request: Any, *, on_device: bool = False) -> Any:
        brought.append(not on_device)
        return own(request, on_device=on_device)

    monkeypatch.setattr(InferRequest, "query_state", query)
    session = dovetail_onnxruntime.InferenceSession(
        decoder_model(), providers=[("DovetailExecutionProvider", {"device": "OPENCL.0"})]
    )
    ours, theirs = Program(session), Program(peer)
    earlier = []
    for words in ([1, 5, 2], [4], [7], [1, 3], [6]):
        same(ours.step(words), theirs.step(words))
        same_caches(ours, theirs)
        earlier.append((ours.caches, {name: cache.copy() for name, cache in ours.caches.items()}))
    assert sum(brought) == 1  # for the rows of the prompt
    assert not any(cache.flags.writeable for cache in ours.caches.values())
    for caches, copies in earlier:
        for name, cache in caches.items():
            np.testing.assert_array_equal(cache, copies[name])
    ours.caches, theirs.caches = ({name: cache * 2 for name, cache in one.caches.items()} for one in (ours, theirs))
    same(ours.step([2]), theirs.step([2]))
    same_caches(ours, theirs)
