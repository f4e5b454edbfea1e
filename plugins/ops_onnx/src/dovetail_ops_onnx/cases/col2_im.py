"""Cases of Col2Im: column element by column element."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.col2_im import Col2Im


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Blocks side by side and overlapping, pads, strides, dilations, one dimension, integers, batch 0."""
    for name, image, block, strides, pads, dilations in (
        ("apart", (4, 6), (2, 3), (2, 3), (0, 0, 0, 0), (1, 1)),
        ("overlapping", (5, 4), (2, 3), (1, 1), (0, 0, 0, 0), (1, 1)),
        ("pads", (5, 4), (3, 2), (2, 1), (1, 0, 1, 1), (1, 1)),
        ("dilations", (5, 6), (2, 2), (1, 2), (0, 1, 1, 0), (2, 3)),
        ("line", (7,), (3,), (2,), (1, 1), (1,)),
    ):
        rank = len(image)
        counts = [
            (n + pads[i] + pads[i + rank] - (block[i] - 1) * dilations[i] - 1) // strides[i] + 1 for i, n in enumerate(image)
        ]
        x = rng.standard_normal((2, 3 * int(np.prod(block)), int(np.prod(counts)))).astype(np.float32)
        want = np.zeros((2, 3, *image))
        columns = x.reshape(2, 3, *block, *counts)
        for k in np.ndindex(*block):
            for o in np.ndindex(*counts):
                at = tuple(o[i] * strides[i] + k[i] * dilations[i] - pads[i] for i in range(rank))
                if all(0 <= a < n for a, n in zip(at, image, strict=True)):
                    want[(..., *at)] += columns[(slice(None), slice(None), *k, *o)]
        op = Col2Im(strides=strides, pads=pads, dilations=dilations)
        inputs, outputs = (x, np.array(image), np.array(block)), (want.astype(np.float32),)
        yield Case(name, op, inputs, outputs, constants=(1, 2))
    sizes = (np.array([2, 2]), np.array([1, 2]))
    yield Case(
        "int32",
        Col2Im(),
        (np.arange(4, dtype=np.int32).reshape(1, 2, 2), *sizes),
        (np.array([[[[0, 2], [1, 3]]]], np.int32),),
        constants=(1, 2),
    )
    yield Case("batch_0", Col2Im(), (np.zeros((0, 2, 2)), *sizes), (np.zeros((0, 1, 2, 2)),), constants=(1, 2))
