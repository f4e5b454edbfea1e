"""Cases of DFT: the definition, term by term."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._fourier import parts, transform
from dovetail_ops_onnx.dft import DFT, DFT_17


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Real and complex, axes, lengths, one side, the inverses, version 17, float64, batch 0."""
    x = rng.standard_normal((2, 7, 5, 2)).astype(np.float32)
    z = x[..., 0] + 1j * x[..., 1]
    yield Case("complex", DFT(), (x,), (parts(transform(z, 2, 5, False), np.float32),), rtol=1e-4, atol=1e-5)
    real = x[..., :1]
    want = parts(transform(z.real, 1, 7, False), np.float32)
    yield Case("real_axis_1", DFT(), (real, None, np.array(1)), (want,), constants=(2,), rtol=1e-4, atol=1e-5)
    yield Case("one_side", DFT(onesided=True), (real, None, np.array(1)), (want[:, :4],), constants=(2,), rtol=1e-4, atol=1e-5)
    yield Case("inverse", DFT(inverse=True), (x,), (parts(transform(z, 2, 5, True), np.float32),), rtol=1e-4, atol=1e-5)
    for length in (3, 9):
        want = parts(transform(z, 1, length, False), np.float32)
        inputs = (x, np.array(length), np.array(-3))
        yield Case(f"length_{length}", DFT(), inputs, (want,), constants=(1, 2), rtol=1e-4, atol=1e-5)
    half = parts(transform(z.real, 1, 7, False), np.float32)[:, :4]
    inputs = (half, np.array(7), np.array(1))
    yield Case("inverse_of_one_side", DFT(inverse=True, onesided=True), inputs, (real,), constants=(1, 2), rtol=1e-4, atol=1e-5)
    yield Case("version_17", DFT_17(), (x,), (parts(transform(z, 1, 7, False), np.float32),), rtol=1e-4, atol=1e-5)
    wide = x.astype(np.float64)
    want = parts(transform(wide[..., 0] + 1j * wide[..., 1], 2, 5, False), np.float64)
    yield Case("float64", DFT(), (wide,), (want,), rtol=1e-10, atol=1e-12)
    yield Case("batch_0", DFT(), (x[:0],), (x[:0],))
