"""Decoders whose caches grow by each token: what programs that generate text see, on onnxruntime and on dovetail."""

import logging
import threading
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail_onnxruntime
from dovetail_onnxruntime import decoder

HEADS, SIZE, WORDS, LAYERS = 2, 8, 13, 2
WIDTH = HEADS * SIZE


def decoder_model(seed: int = 0, positions: bool = True) -> bytes:
    """A decoder as exporters write it: embeddings, attention over caches with a mask, logits.

    Without `positions` the graph counts them itself, from the size of a cache.
    """
    rng = np.random.default_rng(seed)
    nodes, constants = [], {}

    def constant(value: Any, name: str = "") -> str:
        name = name or f"c{len(constants)}"
        constants[name] = np.asarray(value)
        return name

    def weight(*dims: int) -> str:
        return constant((rng.standard_normal(dims) / np.sqrt(dims[0])).astype(np.float32))

    def node(op: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        output = output or f"v{len(nodes)}"
        nodes.append(helper.make_node(op, list(inputs), [output], **attributes))
        return output

    places = "position_ids"
    if not positions:
        rows = node("Shape", "past_key_values.0.key", start=2, end=3)
        new = node("Shape", "input_ids", start=1, end=2)
        scalars = [node("Squeeze", one, constant([0])) for one in (rows, node("Add", rows, new))]
        places = node("Unsqueeze", node("Range", *scalars, constant(np.int64(1))), constant([0]))
    x = node("Add", node("Gather", weight(WORDS, WIDTH), "input_ids"), node("Gather", weight(64, WIDTH), places))
    mask = node("Unsqueeze", node("Cast", "attention_mask", to=TensorProto.FLOAT), constant([1, 2]))
    bias = node("Mul", node("Sub", constant(np.float32(1)), mask), constant(np.float32(-1e9)))
    split, join = constant([0, 0, HEADS, SIZE]), constant([0, 0, WIDTH])
    for layer in range(LAYERS):
        heads = [
            node("Transpose", node("Reshape", node("MatMul", x, weight(WIDTH, WIDTH)), split), perm=[0, 2, 1, 3]) for _ in "qkv"
        ]
        names = [f".{layer}.{kind}" for kind in ("key", "value")]
        keys, values = (
            node("Concat", f"past_key_values{name}", new, output=f"present{name}", axis=2)
            for name, new in zip(names, heads[1:], strict=True)
        )
        scores = node("MatMul", heads[0], node("Transpose", keys, perm=[0, 1, 3, 2]))
        scores = node("Add", node("Mul", scores, constant(np.float32(SIZE**-0.5))), bias)
        read = node("MatMul", node("Softmax", scores, axis=-1), values)
        read = node("Reshape", node("Transpose", read, perm=[0, 2, 1, 3]), join)
        x = node("Add", x, node("MatMul", read, weight(WIDTH, WIDTH)))
    node("MatMul", x, weight(WIDTH, WORDS), output="logits")
    inputs = {"input_ids": ["batch", "new"], "attention_mask": ["batch", "total"], "position_ids": ["batch", "new"]}
    infos = [
        helper.make_tensor_value_info(n, TensorProto.INT64, d) for n, d in inputs.items() if positions or n != "position_ids"
    ]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "new", WORDS])]
    for layer in range(LAYERS):
        for kind in ("key", "value"):
            for start, infos_of, size in (("past_key_values", infos, "past"), ("present", outputs, "total")):
                dims = ["batch", HEADS, size, SIZE]
                infos_of.append(helper.make_tensor_value_info(f"{start}.{layer}.{kind}", TensorProto.FLOAT, dims))
    tensors = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, outputs, tensors)
    return bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9).SerializeToString())


class Program:
    """Generates text as programs do: gives each run the caches that the one before returned."""

    def __init__(self, session: Any, batch: int = 1) -> None:
        self.session, self.batch = session, batch
        self.inputs = [arg.name for arg in session.get_inputs()]
        self.outputs = [arg.name for arg in session.get_outputs()]
        self.caches = self.empty()

    def empty(self) -> dict[str, Any]:
        return {name: np.zeros((self.batch, HEADS, 0, SIZE), np.float32) for name in self.inputs if name.startswith("past")}

    @property
    def length(self) -> int:
        return int(next(iter(self.caches.values())).shape[2])

    def step(self, words: Any, mask: Any = None, caches: dict[str, Any] | None = None) -> Any:
        """The logits of one run, which goes on from the last one, or from these caches."""
        self.caches = self.caches if caches is None else caches
        words = np.broadcast_to(np.asarray(words, np.int64), (self.batch, len(words)))
        total = self.length + words.shape[1]
        feed = {
            "input_ids": np.ascontiguousarray(words),
            "attention_mask": np.ones((self.batch, total), np.int64) if mask is None else mask,
            "position_ids": np.tile(np.arange(self.length, total), (self.batch, 1)),
            **self.caches,
        }
        results = dict(zip(self.outputs, self.session.run(None, {name: feed[name] for name in self.inputs}), strict=True))
        self.caches = {name: results[name.replace("past_key_values", "present")] for name in self.caches}
        return results["logits"]


@pytest.fixture
def peer() -> Any:
    """A session of onnxruntime with the model."""
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    return onnxruntime.InferenceSession(decoder_model(), providers=["CPUExecutionProvider"])


@pytest.fixture
def session() -> Any:
    return dovetail_onnxruntime.InferenceSession(decoder_model())


def same(one: Any, other: Any) -> None:
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def same_caches(one: Program, other: Program) -> None:
    assert one.caches.keys() == other.caches.keys()
    for name, cache in one.caches.items():
        same(cache, other.caches[name])


@pytest.mark.parametrize("batch", [1, 3])
def test_text_is_generated_word_by_word_without_new_plans(session: Any, peer: Any, batch: int) -> None:
    ours, theirs = Program(session, batch), Program(peer, batch)
    same(ours.step([1, 5, 2]), theirs.step([1, 5, 2]))
    for word in (4, 7, 1, 12, 3, 9):
        same(ours.step([word]), theirs.step([word]))
        same_caches(ours, theirs)
    assert len(session._compiled.plans) == 1  # of the prompt
    assert len(session._decoder._held.compiled.plans) == 1


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
    assert session._decoder._held.room == 64


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


def test_caches_of_other_names(peer: Any) -> None:
    """As PyTorch's newer exporter names them: outputs by the operator."""
    import onnx

    model = onnx.load_from_string(decoder_model())
    caches = [value.name for value in model.graph.input if value.name.startswith("past")]
    names = {name: name.replace(".", "_").replace("key_values", "in") for name in caches}
    names |= {name.replace("past_key_values", "present"): f"cat_{index}" for index, name in enumerate(caches)}
    for value in (*model.graph.input, *model.graph.output):
        value.name = names.get(value.name, value.name)
    for node in model.graph.node:
        for ports in (node.input, node.output):
            ports[:] = [names.get(name, name) for name in ports]
    session = dovetail_onnxruntime.InferenceSession(model.SerializeToString())
    theirs, given = Program(peer), {name: np.zeros((1, HEADS, 0, SIZE), np.float32) for name in caches}
    outputs = [arg.name for arg in session.get_outputs()]
    for words in ([1, 5, 2], [4], [7]):
        feed = {
            "input_ids": np.array([words]),
            "attention_mask": np.ones((1, theirs.length + len(words)), np.int64),
            "position_ids": np.arange(theirs.length, theirs.length + len(words))[None],
            **{names[name]: cache for name, cache in given.items()},
        }
        found = dict(zip(outputs, session.run(None, feed), strict=True))
        given = {name: found[names[name.replace("past_key_values", "present")]] for name in caches}
        same(found["logits"], theirs.step(words))
    assert len(session._compiled.plans) == 1


def grouped_model(size: int | str = SIZE, **attributes: Any) -> bytes:
    """The decoder with ONNX Runtime's own attention, which takes the number of tokens from the mask.

    `size` is the declared size of a head; generators of models write a name.
    """
    import onnx

    model = onnx.load_from_string(decoder_model())
    graph, rng = model.graph, np.random.default_rng(4)
    del graph.node[:], graph.initializer[:]
    constants = {"one": np.array([1]), "1": np.int64(1), "zero": np.array([0])}
    constants |= {"words": rng.standard_normal((WORDS, WIDTH)).astype(np.float32)}

    def node(op: str, *inputs: str, outputs: Any = ("",), **attributes: Any) -> str:
        names = [name or f"v{len(graph.node)}" for name in outputs]
        graph.node.append(helper.make_node(op, list(inputs), names, **attributes))
        return names[0]

    def product(x: str, width: int, output: str = "") -> str:
        name = f"w{len(constants)}"
        constants[name] = (rng.standard_normal((WIDTH, width)) / 4).astype(np.float32)
        return node("MatMul", x, name, outputs=[output])

    count = node("Sub", node("ReduceSum", "attention_mask", "one", keepdims=0), "1")
    total = node("Squeeze", node("Shape", "attention_mask", start=1), "zero")
    lengths = [node("Cast", one, to=TensorProto.INT32) for one in (count, total)]
    x = node("Gather", "words", "input_ids")
    for layer in range(LAYERS):
        names = [f".{layer}.{kind}" for kind in ("key", "value")]
        inputs = [*(product(x, WIDTH) for _ in "qkv"), *(f"past_key_values{name}" for name in names), *lengths]
        outputs = ["", *(f"present{name}" for name in names)]
        heads = {"num_heads": HEADS, "kv_num_heads": HEADS, **attributes}
        y = node("GroupQueryAttention", *inputs, outputs=outputs, domain="com.microsoft", **heads)
        x = node("Add", x, product(y, WIDTH))
    product(x, WORDS, "logits")
    graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items())
    del graph.input[2]  # positions
    for info in [*graph.input, *graph.output]:
        if isinstance(size, str) and len(info.type.tensor_type.shape.dim) == 4:
            info.type.tensor_type.shape.dim[3].dim_param = size
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(("batch", "size"), [(1, SIZE), (3, "head_size")])
def test_an_attention_that_writes_into_its_caches(batch: int, size: int | str) -> None:
    import onnxruntime

    data = grouped_model(size)
    session = dovetail_onnxruntime.InferenceSession(data)
    programs = session, onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours, theirs = (Program(one, batch) for one in programs)
    for words in ([1, 5, 2], [4], [7], [1]):
        same(ours.step(words), theirs.step(words))
        same_caches(ours, theirs)
    assert len(session._compiled.plans) == 1
    shorter = np.ones((batch, ours.length + 1), np.int64)
    shorter[:, -1] = 0
    ours.step([2], shorter)  # it would count a token less
    assert len(session._compiled.plans) == 2


def test_caches_of_a_window_do_not_grow() -> None:
    """Those of one layer have the length of its window, those of the other are longer by each token."""
    import onnx
    import onnxruntime

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
    assert len(session._compiled.plans) == 1


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
    assert len(session._decoder._held.compiled.plans) == 2


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
