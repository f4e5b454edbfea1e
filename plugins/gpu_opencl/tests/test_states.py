"""States of requests stay on the device: one buffer for all plans, and no transfer of it from run to run."""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.op import Operator, TensorType
from dovetail_gpu_opencl import request as requests
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.attention import Attention
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.tensor_scatter import TensorScatter

ROOM = 640
CACHES = {"STATE": "past.*:present.*"}


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every copy between host and device."""
    found: list[int] = []
    own = requests.cl.enqueue_copy

    def copy(queue: Any, dst: Any, src: Any, **options: Any) -> Any:
        found.append(max(getattr(side, "nbytes", 0) for side in (dst, src)))
        return own(queue, dst, src, **options)

    monkeypatch.setattr(requests.cl, "enqueue_copy", copy)
    return found


def decoder(room: int = ROOM) -> dovetail.Model:
    """One attention of two heads of 16 with a cache."""
    g = dovetail.GraphBuilder()
    query, counts = g.input("query", "float32", (1, "sequence", 64)), g.input("lengths", "int32", (1,))
    caches = [g.input(f"past.{name}", "float32", (1, 1, room, 16)) for name in ("key", "value")]
    g.node(CachedAttention(2, 1, room), query, "", "", *caches, counts, outputs=["y", "present.key", "present.value"])
    return g.model(["y", "present.key", "present.value"])


def whole(core: dovetail.Core, tokens: Any) -> dict[str, Any]:
    """The output and the caches of NUMPY, which is given all tokens at once."""
    pasts = {f"past.{name}": np.zeros((1, 1, ROOM, 16), np.float32) for name in ("key", "value")}
    with core.compile_model(decoder(), "NUMPY") as compiled:
        return dict(compiled({"query": tokens, "lengths": [tokens.shape[1] - 1], **pasts}))


def told(request: Any, tokens: Any, prompt: int = 5) -> Any:
    """The outputs of a prompt and of token after token."""
    parts = [request.infer({"query": tokens[:, :prompt], "lengths": [prompt - 1]})["y"]]
    rest = range(prompt, tokens.shape[1])
    return np.concatenate([*parts, *(request.infer({"query": tokens[:, i : i + 1], "lengths": [i]})["y"] for i in rest)], 1)


@pytest.mark.parametrize("how", [{}, {"DEBUG_BUFFERS": True}, {"PINNED": True}, {"TRACE": "trace"}], ids=str)
def test_caches_are_written_on_the_device(
    core: Any, rng: Any, info: Any, how: dict[str, Any], tmp_path: Any, moved: list[int]
) -> None:
    how = {"TRACE": str(tmp_path / "trace.json")} if "TRACE" in how else how
    tokens = rng.standard_normal((1, 9, 64)).astype(np.float32)
    want = whole(core, tokens)
    with core.compile_model(decoder(), info.name, {**CACHES, **how}) as compiled:
        request = compiled.create_infer_request()
        for _ in range(2):
            moved.clear()
            np.testing.assert_allclose(told(request, tokens), want["y"], rtol=1e-4, atol=1e-5)
            assert moved
            assert max(moved) < ROOM * 16 * 4
            for name, array in request.query_state().items():
                np.testing.assert_allclose(array, want[name.replace("past", "present")], rtol=1e-6, atol=1e-6)
            request.reset_state()
            assert not any(array.any() for array in request.query_state().values())
        assert len(compiled.plans) == 2
        assert [node.kernel for node in compiled.report().nodes] == ["cached_attention"]
        assert sum(compiled.report().memory.values()) < ROOM * 16 * 4


def test_what_is_written_into_the_states_is_read(core: Any, rng: Any, info: Any) -> None:
    tokens = rng.standard_normal((1, 7, 64)).astype(np.float32)
    with core.compile_model(decoder(), info.name, CACHES) as compiled:
        first, second = compiled.create_infer_request(), compiled.create_infer_request()
        want = told(first, tokens)
        told(second, tokens[:, ::-1].copy(), 6)
        for name, array in second.query_state().items():
            array[...] = first.query_state()[name]
        again = second.infer({"query": tokens[:, 6:], "lengths": [6]})["y"]
        np.testing.assert_allclose(again, want[:, 6:], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told(first, tokens), want, rtol=1e-5, atol=1e-6)


def test_results_that_stay_on_the_device(core: Any, rng: Any, info: Any, queue: str, moved: list[int]) -> None:
    tokens = rng.standard_normal((1, 7, 64)).astype(np.float32)
    want = whole(core, tokens)["y"]
    with core.compile_model(decoder(), info.name, {**CACHES, "QUEUE": queue}) as compiled:
        request = compiled.create_infer_request()
        kept = [request.infer({"query": tokens[:, i : i + 1], "lengths": [i]}, on_device=True)["y"] for i in range(7)]
        np.testing.assert_allclose(np.concatenate(kept, 1), want, rtol=1e-4, atol=1e-5)
        assert {type(one).__name__ for one in kept} == {"DeviceArray"}
        assert max(moved) < ROOM * 16 * 4


def test_states_that_are_read_on_the_device(core: Any, rng: Any, info: Any, moved: list[int]) -> None:
    """Parts of them come to the host, and they stay where they are: the next runs move none of them."""
    tokens = rng.standard_normal((1, 9, 64)).astype(np.float32)
    want = whole(core, tokens)
    with core.compile_model(decoder(), info.name, CACHES) as compiled:
        request = compiled.create_infer_request()
        told(request, tokens[:, :3], 3)
        held = request.query_state(on_device=True)
        moved.clear()
        for name, state in held.items():
            expected = np.zeros(state.shape, np.float32)
            expected[:, :, :3] = want[name.replace("past", "present")][:, :, :3]
            np.testing.assert_allclose(state.part(2, 1, 3), expected[:, :, 1:3], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(state.part(3, 5, 16), expected[..., 5:], rtol=1e-6, atol=1e-6)
            np.testing.assert_allclose(state.part(0, 0, 1), expected, rtol=1e-6, atol=1e-6)
            assert state.part(2, 2, 2).shape == (1, 1, 0, 16)
        assert min(moved) == 2 * 16 * 4
        moved.clear()
        again = [request.infer({"query": tokens[:, i : i + 1], "lengths": [i]})["y"] for i in range(3, 9)]
        np.testing.assert_allclose(np.concatenate(again, 1), want["y"][:, 3:], rtol=1e-4, atol=1e-5)
        assert max(moved) < ROOM * 16 * 4


@pytest.mark.parametrize("device", ["HETERO:{},NUMPY", "AUTO:{}", "MULTI:{}"])
def test_virtual_devices(core: Any, rng: Any, info: Any, device: str) -> None:
    tokens = rng.standard_normal((1, 7, 64)).astype(np.float32)
    with core.compile_model(decoder(), device.format(info.name), CACHES) as compiled:
        request, other = compiled.create_infer_request(), compiled.create_infer_request()
        told(other, tokens[:, ::-1].copy())
        np.testing.assert_allclose(told(request, tokens), whole(core, tokens)["y"], rtol=1e-4, atol=1e-5)


def counter(make: Callable[[Any, str, str], None]) -> dovetail.Model:
    """`make` adds nodes from x [rows, 2] and past [2] to present, and perhaps y."""
    g = dovetail.GraphBuilder()
    x, past = g.input("x", "float32", ("rows", 2)), g.input("past", "float32", (2,))
    make(g, g.node(ReduceSum(keepdims=False), x, g.constant([0], "int64")), past)
    return g.model(["present", *(["y"] if "y" in g.graph(["present"]).producers else [])])


def summed(g: Any, total: str, past: str) -> None:
    g.node(Add(), past, total, outputs=["present"])


def read_afterwards(g: Any, total: str, past: str) -> None:
    g.node(Add(), past, total, outputs=["present"])
    g.node(Mul(), past, "present", outputs=["y"])


def seen_in_another_shape(g: Any, total: str, past: str) -> None:
    g.node(Add(), past, total, outputs=["present"])
    g.node(Reshape(), "present", g.constant([2, 1], "int64"), outputs=["y"])


class Squared(Operator):
    """An operator that only the host computes."""

    domain = "my"

    def infer(self, X: TensorType) -> TensorType:
        return X

    def reference(self, X: Any) -> Any:
        return X * X


def read_behind_another_device(g: Any, total: str, past: str) -> None:
    """By a second part of the device, which does not keep the state."""
    g.node(Add(), past, total, outputs=["present"])
    g.node(Mul(), "present", g.node(Squared(), total), outputs=["y"])


@pytest.mark.parametrize("make", [summed, read_afterwards, seen_in_another_shape, read_behind_another_device])
def test_states_of_other_kernels(core: Any, info: Any, make: Any) -> None:
    with core.compile_model(counter(make), info.name, {"STATE": "past:present"}) as compiled:
        request, past = compiled.create_infer_request(), np.zeros(2, np.float32)
        for rows in (3, 1, 1, 2):
            results, before = request.infer(np.full((rows, 2), [1, 2], np.float32)), past
            past = past + np.array([rows, 2 * rows], np.float32)
            want = {
                summed: [],
                read_afterwards: [before * past],
                seen_in_another_shape: [past.reshape(2, 1)],
                read_behind_another_device: [past * np.array([rows, 2 * rows], np.float32) ** 2],
            }[make]
            for found, expected in zip(results.values(), want, strict=True):
                np.testing.assert_array_equal(found, expected)
            if rows == 2:
                np.testing.assert_array_equal(request.query_state()["past"], past)


def test_a_full_cache_is_an_error_that_names_it(core: Any, info: Any, rng: Any) -> None:
    tokens = rng.standard_normal((1, 7, 64)).astype(np.float32)
    with core.compile_model(decoder(), info.name, CACHES) as compiled:
        request = compiled.create_infer_request()
        with pytest.raises(dovetail.DovetailError, match=r"'past.key', 'past.value' have room for 640 keys"):
            request.infer({"query": tokens[:, :1], "lengths": [ROOM]})
        np.testing.assert_allclose(told(request, tokens), whole(core, tokens)["y"], rtol=1e-4, atol=1e-5)


def test_a_conversation_of_2000_tokens(core: Any, info: Any, rng: Any, moved: list[int]) -> None:
    token = rng.standard_normal((1, 1, 64)).astype(np.float32)

    def resident() -> int:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with core.compile_model(decoder(2048), info.name, CACHES) as compiled:
        request = compiled.create_infer_request()
        for i in range(200):
            request.infer({"query": token, "lengths": [i]})
        before = resident()
        moved.clear()
        for i in range(200, 2000):
            request.infer({"query": token, "lengths": [i]})
        assert resident() - before < 4 << 20
        assert len(moved) == 1800 * 4  # two inputs, the output, the fault flags
        assert max(moved) < 1024
        assert len(compiled.plans) == 1


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_tensor_scatter_and_attention(core: Any, info: Any, rng: Any, mode: str, moved: list[int]) -> None:
    """The standard's operators for caches: the keys are written in place, and attention is told how many there are."""
    room, size = 96, 8
    g = dovetail.GraphBuilder()
    q, new, places, counts = (
        g.input(name, dtype, shape)
        for name, dtype, shape in (
            ("q", "float32", (2, 2, "rows", size)),
            ("new", "float32", (2, 1, "rows", size)),
            ("places", "int64", (2,)),
            ("counts", "int64", (2,)),
        )
    )
    past = g.input("past", "float32", (2, 1, room, size))
    cache = g.node(TensorScatter(mode=mode), past, new, places, outputs=["present"])
    g.node(Attention(is_causal=True), q, cache, cache, "", "", "", counts, outputs=["y"])
    with core.compile_model(g.model(["y", "present"]), info.name, {"STATE": "past:present"}) as compiled:
        request, keys = compiled.create_infer_request(), np.zeros((2, 1, room, size))
        starts = np.array([0, 4])
        for rows in (3, 1, 1):
            queries, added = (rng.standard_normal((2, n, rows, size)).astype(np.float32) for n in (2, 1))
            given = {"q": queries, "new": added, "places": starts, "counts": starts + rows}
            found = request.infer(given)["y"]
            for b, start in enumerate(starts):
                keys[b, :, start : start + rows] = added[b]
                for i in range(rows):
                    seen = keys[b, 0, : start + i + 1]
                    weights = np.exp(queries[b, :, i] @ seen.T / np.sqrt(size))
                    np.testing.assert_allclose(
                        found[b, :, i], weights / weights.sum(1, keepdims=True) @ seen, rtol=1e-5, atol=1e-6
                    )
            starts = starts + rows
        assert max(moved) < room * size * 4
        np.testing.assert_array_equal(request.query_state()["past"], keys.astype(np.float32))
        with pytest.raises(dovetail.DovetailError, match=r"the cache 'past' takes 0 to 9[56]"):
            request.infer(given | {"places": np.array([0, room + 1])})
