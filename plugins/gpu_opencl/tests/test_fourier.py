"""DFT, STFT and DeformConv, which computed on the host: against NumPy's transforms in float64, and against the reference."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import DeviceInfo, TypedNode
from dovetail.op import DType, GraphBuilder
from dovetail_ops_onnx.deform_conv import DeformConv
from dovetail_ops_onnx.dft import DFT
from dovetail_ops_onnx.stft import STFT


@pytest.mark.parametrize(
    ("size", "step", "parts", "onesided", "windowed"),
    [(400, 160, 0, True, True), (512, 128, 1, True, False), (257, 300, 2, False, True), (1, 1, 2, False, False)],
)
def test_frames(
    size: int,
    step: int,
    parts: int,
    onesided: bool,
    windowed: bool,
    kind_device: Callable[[str], Any],
    bench: Any,
    rng: np.random.Generator,
) -> None:
    """Sizes of speech recognition, of an odd length, of complex signals; `parts` 0 leaves the last axis out."""
    signal = rng.standard_normal((3, 1999, *((parts,) if parts else ()))).astype(np.float32)
    window = np.hanning(size).astype(np.float32) if windowed else None
    inputs = [signal, np.array(step), window, None if windowed else np.array(size)]
    graph, feeds = bench.single(STFT(onesided=onesided), inputs, (1, 2, 3))
    (found,) = bench.run(kind_device("GPU"), graph, feeds)
    given = signal.astype(np.float64)
    lines = given[..., 0] + 1j * given[..., 1] if parts == 2 else given.reshape(3, -1)
    frames = np.stack([lines[:, at : at + size] for at in range(0, 1999 - size + 1, step)], 1)
    wanted = np.fft.fft(frames if window is None else frames * window)
    wanted = wanted[..., : size // 2 + 1] if onesided else wanted
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], wanted, rtol=1e-4, atol=2e-5 * np.sqrt(size))


@pytest.mark.parametrize(("length", "used"), [(9, 5), (10, 6), (10, 4), (700, 351)])
def test_real_lines_from_half_of_their_frequencies(
    length: int, used: int, kind_device: Callable[[str], Any], bench: Any, rng: np.random.Generator
) -> None:
    """The imaginary parts of the first and the middle frequency count for nothing; those that are missing are zero."""
    x = rng.standard_normal((2, used, 3, 2)).astype(np.float32)
    x[:, 0, :, 1] = np.inf
    graph, feeds = bench.single(DFT(inverse=True, onesided=True), [x, np.array(length), np.array(1)], (1, 2))
    (found,) = bench.run(kind_device("GPU"), graph, feeds)
    x[:, 0, :, 1] = 0
    wanted = np.fft.irfft(x[..., 0].astype(np.float64) + 1j * x[..., 1], length, 1)
    np.testing.assert_allclose(found[..., 0], wanted, rtol=1e-4, atol=1e-5)


def test_lines_that_local_memory_does_not_hold_are_refused(kind_device: Callable[[str], Any], bench: Any) -> None:
    device = kind_device("GPU")
    graph, _ = bench.single(DFT(), [np.zeros((1, 1 << 23, 1), np.float32)])
    refusal = device.supports(TypedNode.of(graph.nodes[0], graph))
    assert not refusal
    assert f"accepted: {device.caps.local_memory}" in str(refusal)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_deformed_convolutions_stay_on_the_device(dtype: Any, info: DeviceInfo, rng: np.random.Generator) -> None:
    """DCNv2: groups of offsets, masks, places outside of the image."""
    op = DeformConv(group=2, offset_group=2, pads=(1, 1, 1, 1), strides=(2, 1))
    x, w, offset, b, mask = (
        rng.standard_normal(shape).astype(dtype) for shape in ((2, 8, 9, 7), (6, 4, 3, 3), (2, 36, 5, 7), (6,), (2, 18, 5, 7))
    )
    g = GraphBuilder()
    kind = DType.of(x.dtype)
    names = [g.input(n, kind, a.shape) for n, a in (("x", x), ("offset", 3 * offset), ("mask", mask))]
    model = g.model([g.node(op, names[0], g.constant(w), names[1], g.constant(b), names[2])])
    with Core().compile_model(model, info.name, {"FALLBACK": False}) as compiled:
        (found,) = compiled({"x": x, "offset": 3 * offset, "mask": mask}).values()
    wanted = op.reference(*(a.astype(np.float64) for a in (x, w, 3 * offset, b, mask)))
    np.testing.assert_allclose(
        found, wanted, rtol=1e-4 if dtype is np.float32 else 2e-2, atol=1e-4 if dtype is np.float32 else 5e-2
    )
