"""Cases of TensorScatter: element by element."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.tensor_scatter import TensorScatter


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """With and without indices, circular, another axis, batch 0."""
    past = rng.standard_normal((2, 3, 6, 4)).astype(np.float32)
    update = rng.standard_normal((2, 3, 2, 4)).astype(np.float32)
    for name, mode, starts in (("linear", "linear", (1, 4)), ("circular", "circular", (5, 0)), ("start", "linear", None)):
        want = past.copy()
        for batch in range(2):
            for step in range(2):
                want[batch, :, ((0, 0) if starts is None else starts)[batch] + step - 6] = update[batch, :, step]
        indices = None if starts is None else np.array(starts)
        yield Case(name, TensorScatter(mode=mode), (past, update, indices), (want,))
    flat, row = np.zeros((1, 4), np.float16), np.ones((1, 2), np.float16)
    want = np.array([[0, 1, 1, 0]], np.float16)
    yield Case("axis", TensorScatter(axis=1), (flat, row, np.array([1])), (want,))
    yield Case("batch_0", TensorScatter(), (past[:0], update[:0]), (past[:0],))
