"""Cases of STFT: the definition, frame by frame and term by term."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._fourier import parts, transform
from dovetail_ops_onnx.stft import STFT


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """One and both sides, real and complex, window, frame length, one frame, batch 0."""
    x = rng.standard_normal((2, 11, 2)).astype(np.float32)
    window = rng.uniform(0, 1, 4).astype(np.float32)
    for name, signal, onesided in (("real", x[..., 0], True), ("complex", x[..., 0] + 1j * x[..., 1], False)):
        frames = np.stack([signal[:, at : at + 4] * window for at in range(0, 8, 3)], 1)
        want = parts(transform(frames, 2, 4, False), np.float32)[:, :, : 3 if onesided else 4]
        given = (x[..., :1] if onesided else x, np.array(3), window, np.array(4))
        yield Case(name, STFT(onesided=onesided), given, (want,), constants=(1, 3), rtol=1e-4, atol=1e-5)
        yield Case(
            f"{name}_window_only", STFT(onesided=onesided), (*given[:3], None), (want,), constants=(1,), rtol=1e-4, atol=1e-5
        )
        if onesided:
            yield Case("no_last_axis", STFT(), (signal, *given[1:]), (want,), constants=(1, 3), rtol=1e-4, atol=1e-5)
    want = parts(transform(x[:, :, 0], 1, 11, False), np.float32)[:, None, :6]
    yield Case("one_frame", STFT(), (x[..., :1], np.array(2, np.int32)), (want,), constants=(1,), rtol=1e-4, atol=1e-5)
    yield Case("batch_0", STFT(), (x[:0, :, :1], np.array(2)), (want[:0],), constants=(1,))
