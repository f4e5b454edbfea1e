"""Caches that a request keeps: written where they are, with one plan for prompts and one for tokens."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_ops_onnxruntime_contrib.group_query_attention import GroupQueryAttention

ROOM = 640


def decoder() -> dovetail.Model:
    """One attention of two heads of 16 with a cache."""
    g = dovetail.GraphBuilder()
    query, counts = g.input("query", "float32", (1, "sequence", 64)), g.input("lengths", "int32", (1,))
    caches = [g.input(f"past.{name}", "float32", (1, 1, ROOM, 16)) for name in ("key", "value")]
    op = GroupQueryAttention(num_heads=2, kv_num_heads=1)
    inputs = (query, "", "", *caches, counts, g.constant(ROOM, "int32"))
    g.node(op, *inputs, outputs=["y", "present.key", "present.value"])
    return g.model(["y", "present.key", "present.value"])


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("recorded", [False, True])
def test_caches_are_written_where_they_are(core: Any, rng: Any, device: str, recorded: bool, tmp_path: Any) -> None:
    properties = {"STATE": "past.*:present.*", **({"TRACE": str(tmp_path / "trace.json")} if recorded else {})}
    tokens = rng.standard_normal((1, 12, 64)).astype(np.float32)
    pasts = {f"past.{name}": np.zeros((1, 1, ROOM, 16), np.float32) for name in ("key", "value")}
    with core.compile_model(decoder(), device) as whole:
        want = whole({"query": tokens, "lengths": [11], **pasts})
    with core.compile_model(decoder(), device, properties) as compiled:
        request = compiled.create_infer_request()
        for repeated in range(2):
            caches = request.query_state()
            places = [array.ctypes.data for array in caches.values()]
            parts = [request.infer({"query": tokens[:, :5], "lengths": [4]})["y"]]
            parts += [request.infer({"query": tokens[:, i : i + 1], "lengths": [i]})["y"] for i in range(5, 12)]
            np.testing.assert_allclose(np.concatenate(parts, 1), want["y"], rtol=1e-4, atol=1e-5)
            for name, array in request.query_state().items():
                np.testing.assert_array_equal(array, want[name.replace("past", "present")], f"{repeated} {name}")
            assert [array.ctypes.data for array in request.query_state().values()] == places
            request.reset_state()
        assert len(compiled.plans) == 2
        # The arena has no room for even one cache.
        assert compiled.report().memory[device] < ROOM * 16 * 4


def test_a_full_cache_is_an_error_that_names_the_node(core: Any) -> None:
    with core.compile_model(decoder(), "NUMPY", {"STATE": "past.*:present.*"}) as compiled:
        request = compiled.create_infer_request()
        with pytest.raises(dovetail.DovetailError, match=r"group_query_attention.*accepted: 0 to 639") as caught:
            request.infer({"query": np.ones((1, 1, 64), np.float32), "lengths": [ROOM]})
        assert "the caches 'past_key' and 'past_value' are full: they hold 640 keys" in caught.value.hint
