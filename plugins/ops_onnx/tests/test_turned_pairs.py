"""The host's kernel of RotaryEmbedding in parts of several sizes, against complex numbers of float64."""

from typing import Any

import numpy as np
import pytest

from dovetail import Core
from dovetail.errors import DovetailError
from dovetail.op import GraphBuilder
from dovetail_ops_onnx import _turned_pairs
from dovetail_ops_onnx.rotary_embedding import RotaryEmbedding


def _turned(x: Any, angles: Any, turned: int, interleaved: bool) -> Any:
    """Of x [batch, heads, sequence, size]."""
    half, y = turned // 2, x.astype(np.float64)
    first, second = (slice(0, turned, 2), slice(1, turned, 2)) if interleaved else (slice(0, half), slice(half, turned))
    z = (y[..., first] + 1j * y[..., second]) * np.exp(1j * angles.astype(np.float64))[:, None]
    y[..., first], y[..., second] = z.real, z.imag
    return y


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize(("size", "turned"), [(6, 6), (7, 4), (2, 2)])
@pytest.mark.parametrize("part", [1, 40, 100, 2**15])
@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("is_shared", [False, True])
def test_parts(
    monkeypatch: pytest.MonkeyPatch, interleaved: bool, size: int, turned: int, part: int, flat: bool, is_shared: bool
) -> None:
    monkeypatch.setattr(_turned_pairs, "_PART", part)
    rng = np.random.default_rng(3)
    for batch, heads, length in ((1, 3, 5), (3, 2, 1), (2, 1, 9), (1, 5, 7)):
        x = rng.standard_normal((batch, heads, length, size)).astype(np.float32)
        table = rng.uniform(-3, 3, (11, turned // 2)).astype(np.float32)
        ids = rng.integers(-11, 11, (1 if is_shared else batch, length))
        want, given = _turned(x, table[ids], turned, interleaved), x
        if flat:
            given, want = (one.swapaxes(1, 2).reshape(batch, length, heads * size) for one in (x, want))
        given = np.ascontiguousarray(given)
        given.flags.writeable = False
        op = RotaryEmbedding(interleaved=interleaved, num_heads=heads, rotary_embedding_dim=turned)
        (kernel,) = op.kernels
        assert isinstance(kernel, _turned_pairs.TurnedPairs)
        rows = np.broadcast_to(ids, (batch, length))
        for inputs in ((np.cos(table), np.sin(table), rows), (np.cos(table[ids]), np.sin(table[ids]), None)):
            y = np.full(given.shape, np.nan, np.float32)
            kernel.execute(op, kernel.configurations(op, (), ())[0], [given, *inputs], [y])
            np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_devices_run_it(core: Core, device: str) -> None:
    if device not in core.available_devices:
        pytest.skip(f"no {device} here")
    g = GraphBuilder()
    names = [g.input("x", "float32", (1, 2, 3, 4)), *(g.input(n, "float32", (5, 2)) for n in "cs"), g.input("i", "int64", (1, 3))]
    with core.compile_model(g.model([g.node(RotaryEmbedding(), *names)]), device) as compiled:
        assert [node.kernel for node in compiled.report().nodes] == ["turned_pairs"]
        feed = {"x": np.ones((1, 2, 3, 4), np.float32), "c": np.ones((5, 2), np.float32), "s": np.ones((5, 2), np.float32)}
        for wrong in (5, -6):
            with pytest.raises(DovetailError, match=f"index {wrong} is outside axis 0 of size 5"):
                compiled({**feed, "i": np.array([[0, 1, wrong]])})
