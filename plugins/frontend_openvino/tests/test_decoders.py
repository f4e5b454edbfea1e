"""Stateful decoders: caches that each run makes longer are kept with room for more, and tokens need no plan."""

from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import pytest
from openvino import opset13

from dovetail.errors import DovetailError, UsageError
from dovetail_frontend_openvino import dovetail_read_model

HEADS, SIZE, WORDS = 2, 4, 11
WIDTH = HEADS * SIZE
DEVICES = ["NUMPY", "ONEDNN"]


def _variable(name: str) -> Any:
    info = ov.op.util.VariableInfo()
    info.data_shape, info.data_type, info.variable_id = ov.PartialShape([-1, HEADS, -1, SIZE]), ov.Type.f32, name
    return ov.op.util.Variable(info)


class _Decoder:
    """One layer of attention as optimum-intel exports it: ReadValue, Gather, Concat, Assign."""

    def __init__(self, *, is_masked: bool = True, is_ordered: bool = True, first: int = 0) -> None:
        self.rng = np.random.default_rng(3)
        self.tokens = self.parameter("input_ids", [-1, -1], np.int64)
        self.order = self.parameter("beam_idx", [-1], np.int32) if is_ordered else None
        self.mask = self.parameter("attention_mask", [-1, -1], np.int64) if is_masked else None
        self.first, self.sinks = first, []

    def parameter(self, name: str, shape: list[int], dtype: Any) -> Any:
        found = opset13.parameter(shape, dtype, name)
        found.output(0).get_tensor().set_names({name})
        return found

    def weight(self, *shape: int) -> Any:
        return opset13.constant(self.rng.standard_normal(shape).astype(np.float32))

    def heads(self, rows: Any) -> Any:
        split = opset13.reshape(opset13.matmul(rows, self.weight(WIDTH, WIDTH), False, False), [0, 0, HEADS, SIZE], True)
        return opset13.transpose(split, [0, 2, 1, 3])

    def cached(self, name: str, new: Any) -> Any:
        variable = _variable(name)
        batch = opset13.gather(opset13.shape_of(self.tokens), opset13.constant([0]), opset13.constant(0))
        sizes = [batch, opset13.constant([HEADS]), opset13.constant([self.first]), opset13.constant([SIZE])]
        past = ov.opset6.read_value(opset13.broadcast(opset13.constant(np.float32(0)), opset13.concat(sizes, 0)), variable)
        if self.order is not None:
            past = opset13.gather(past, self.order, opset13.constant(0))
        present = opset13.concat([past, new], 2)
        self.sinks.append(ov.opset6.assign(present, variable))
        return present

    def bias(self, keys: Any, queries: Any) -> Any:
        """0 for keys that a query sees: those before it, which the mask has."""

        def sizes(of: Any, axis: int) -> Any:
            return opset13.gather(opset13.shape_of(of), opset13.constant(axis), opset13.constant(0))

        total, new = sizes(keys, 2), sizes(queries, 2)
        places = opset13.range(opset13.constant(0), total, opset13.constant(1), "i64")
        own = opset13.unsqueeze(opset13.range(opset13.subtract(total, new), total, opset13.constant(1), "i64"), [1])
        seen = opset13.unsqueeze(opset13.less_equal(opset13.unsqueeze(places, [0]), own), [0, 1])
        if self.mask is not None:
            seen = opset13.logical_and(seen, opset13.unsqueeze(opset13.convert(self.mask, "boolean"), [1, 2]))
        return opset13.select(seen, opset13.constant(np.float32(0)), opset13.constant(np.float32(-1e9)))

    def model(self) -> ov.Model:
        x = opset13.gather(self.weight(WORDS, WIDTH), self.tokens, opset13.constant(0))
        for layer in range(2):
            query = self.heads(x)
            keys, values = (self.cached(f"past.{layer}.{name}", self.heads(x)) for name in ("key", "value"))
            found = opset13.scaled_dot_product_attention(query, keys, values, self.bias(keys, query))
            x = opset13.add(x, opset13.reshape(opset13.transpose(found, [0, 2, 1, 3]), [0, 0, WIDTH], True))
        logits = opset13.matmul(x, self.weight(WIDTH, WORDS), False, False)
        logits.output(0).get_tensor().set_names({"logits"})
        inputs = [one for one in (self.tokens, self.mask, self.order) if one is not None]
        return ov.Model([opset13.result(logits)], self.sinks, inputs, "decoder")


class _Text:
    """The same text given to dovetail and to OpenVINO."""

    def __init__(self, request: Any, theirs: Any, names: Any, texts: int, seed: int = 1) -> None:
        self._request, self._theirs, self._names = request, theirs, names
        self.rng, self.mask = np.random.default_rng(seed), np.ones((texts, 0), np.int64)

    def step(self, new: int, order: Any = None, padded: bool = False) -> Any:
        texts = len(self.mask)
        ones = np.ones((texts, new), np.int64)
        if padded:
            ones[: texts // 2, :2] = 0
        self.mask = np.concatenate([self.mask, ones], 1)
        given = {"input_ids": self.rng.integers(0, WORDS, (texts, new)), "attention_mask": self.mask}
        given["beam_idx"] = np.arange(texts, dtype=np.int32) if order is None else np.array(order, np.int32)
        given = {name: given[name] for name in self._names}
        wanted = np.array(self._theirs.infer(given)[0])
        found = self._request.infer(given)["logits"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
        return given

    def check_states(self, theirs: Any) -> None:
        wanted = {state.name: np.array(state.state.data) for state in theirs.query_state()}
        found = self._request.query_state()
        assert found.keys() == wanted.keys()
        for name, state in found.items():
            np.testing.assert_allclose(state, wanted[name], rtol=1e-4, atol=1e-5)


@pytest.fixture
def theirs_of() -> Any:
    def compiled(path: Path) -> Any:
        exact = {"KV_CACHE_PRECISION": "f32", "INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
        return ov.Core().compile_model(path, "CPU", exact).create_infer_request()

    return compiled


@pytest.mark.parametrize("options", [{}, {"is_masked": False}, {"is_ordered": False}], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_tokens_need_no_plan(saved: Any, core: Any, theirs_of: Any, device: str, options: Any) -> None:
    path = saved(_Decoder(**options).model())
    model, theirs = core.read_model(path), theirs_of(path)
    with core.compile_model(model, device) as compiled:
        request = compiled.create_infer_request()
        text = _Text(request, theirs, model.inputs, 2)
        for new in (5, 1, 1, 3, 1):
            text.step(new)
        assert not compiled.plans
        with_room = compiled.with_room(2, 256)
        assert len(with_room.plans) == 3  # for 5, 1 and 3 tokens
        text.check_states(theirs)
        assert "TensorScatter" in {node.op for node in compiled.report().nodes}
        assert "take_over" in {report.passes[-1].name for report in with_room.plans.values()}  # the one for 3 tokens
        for _ in range(3):
            text.step(1)
        assert len(with_room.plans) == 3


@pytest.mark.parametrize("device", DEVICES)
def test_the_order_of_texts_changes(saved: Any, core: Any, theirs_of: Any, device: str) -> None:
    path = saved(_Decoder().model())
    model, theirs = core.read_model(path), theirs_of(path)
    with core.compile_model(model, device) as compiled:
        text = _Text(compiled.create_infer_request(), theirs, model.inputs, 3)
        text.step(4)
        for order in ([2, 2, 0], [0, 1, 2], [1, 0, 0], [2, 1, 0]):
            text.step(1, order)
            text.check_states(theirs)
        assert not compiled.plans


@pytest.mark.parametrize("device", DEVICES)
def test_texts_of_several_lengths_are_padded_in_front(saved: Any, core: Any, theirs_of: Any, device: str) -> None:
    path = saved(_Decoder().model())
    model, theirs = core.read_model(path), theirs_of(path)
    with core.compile_model(model, device) as compiled:
        text = _Text(compiled.create_infer_request(), theirs, model.inputs, 4)
        text.step(5, padded=True)
        for order in (None, [0, 1, 3, 2], None):
            text.step(1, order)
        assert not compiled.plans


@pytest.mark.parametrize("device", DEVICES)
def test_states_get_more_room_and_are_reset(saved: Any, core: Any, theirs_of: Any, device: str) -> None:
    path = saved(_Decoder().model())
    model, theirs = core.read_model(path), theirs_of(path)
    with core.compile_model(model, device) as compiled:
        request = compiled.create_infer_request()
        text = _Text(request, theirs, model.inputs, 2)
        text.step(254)
        for order in ([1, 0], None, [1, 1], None):
            text.step(1, order)
        text.check_states(theirs)
        assert not compiled.plans
        assert compiled.with_room(2, 512).plans
        for texts in (3, 2):
            request.reset_state()
            theirs.reset_state()
            assert all(state.size == 0 for state in request.query_state().values())
            text = _Text(request, theirs, model.inputs, texts, seed=texts)
            text.step(3)
            text.step(1)
        assert not compiled.plans


def test_what_is_written_into_states_is_read(saved: Any, core: Any) -> None:
    path = saved(_Decoder(is_masked=False, is_ordered=False).model())
    with core.compile_model(core.read_model(path), "NUMPY") as compiled:
        one, other = compiled.create_infer_request(), compiled.create_infer_request()
        one.infer(np.array([[1, 2, 3]]))
        other.infer(np.array([[4, 5, 6]]))
        for name, state in other.query_state().items():
            state[...] = one.query_state()[name]
        np.testing.assert_array_equal(other.infer(np.array([[7]]))[0], one.infer(np.array([[7]]))[0])


def test_states_that_grow_stay_in_memory_of_the_request(saved: Any, core: Any) -> None:
    model = core.read_model(saved(_Decoder(is_masked=False, is_ordered=False).model()))
    request = core.compile_model(model, "NUMPY").create_infer_request()
    with pytest.raises(UsageError, match="grow"):
        request.set_state({})


def test_runs_that_do_not_continue_texts(saved: Any, core: Any, theirs_of: Any) -> None:
    """Another number of texts is chosen from those so far: the model runs as it is, with its states."""
    path = saved(_Decoder().model())
    model, theirs = core.read_model(path), theirs_of(path)
    with core.compile_model(model, "NUMPY") as compiled:
        request = compiled.create_infer_request()
        text = _Text(request, theirs, model.inputs, 2)
        text.step(3)
        text.step(1)
        text.mask = np.concatenate([text.mask, text.mask[:1]])
        text.step(1, [1, 0, 1])
        text.check_states(theirs)
        text.step(1, [2, 0, 1])
        with pytest.raises(DovetailError, match=r"attention_mask|broadcast"):
            request.infer({"input_ids": np.ones((3, 1), np.int64), "attention_mask": np.ones((3, 5)), "beam_idx": np.arange(3)})


def test_models_that_cannot_have_room_run_as_they_are(saved: Any, core: Any, theirs_of: Any) -> None:
    """The first output has a value for each key."""
    decoder = _Decoder(is_masked=False)
    model = decoder.model()
    keys = decoder.sinks[0].input_value(0)
    model.add_results([opset13.result(opset13.multiply(keys, np.float32(2)))])
    path = saved(model)
    read, theirs = core.read_model(path), theirs_of(path)
    assert read.growth is not None
    with core.compile_model(read, "NUMPY") as compiled:
        text = _Text(compiled.create_infer_request(), theirs, read.inputs, 2)
        for new in (3, 1, 1):
            text.step(new)
        assert compiled.plans
        text.check_states(theirs)


def test_variables_with_rows_at_first_are_not_declared_to_grow(saved: Any, core: Any) -> None:
    assert core.read_model(saved(_Decoder(first=1).model())).growth is None


def test_requests_and_pickles(saved: Any, core: Any) -> None:
    """Requests in turn, in the background, and of a virtual device give the same."""
    path = saved(_Decoder(is_masked=False, is_ordered=False).model())
    prompt, token = np.array([[1, 2, 3]]), np.array([[4]])
    with core.compile_model(core.read_model(path), "NUMPY") as compiled:
        wanted = [np.array(compiled.create_infer_request().infer(np.array([[1, 2, 3, 4]]))[0])[:, 3:]]
        one, other = compiled.create_infer_request(), compiled.create_infer_request()
        for request in (one, other):
            request.start_async(prompt)
            request.wait()
        for request in (other, one):
            request.start_async(token)
            request.wait()
            wanted.append(request.results[0])
    with core.compile_model(dovetail_read_model(path, {}), "AUTO:NUMPY") as compiled:
        request = compiled.create_infer_request()
        request.infer(prompt)
        wanted.append(request.infer(token)[0])
    for found in wanted[1:]:
        np.testing.assert_allclose(found, wanted[0], rtol=1e-5)
