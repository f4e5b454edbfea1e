"""Graphs of cameras' pictures, patches and CTC decoders; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset1, opset3, opset6, opset8

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c, RNG = (_GRAPHS[name] for name in ("Operation", "f", "i", "c", "RNG"))


def _cameras() -> Iterable[Any]:
    for dtype in (np.uint8, np.float32):
        planes = [RNG.integers(0, 256, shape).astype(dtype) for shape in ((2, 6, 8, 1), (2, 3, 4, 2), (2, 3, 4, 1), (2, 3, 4, 1))]
        whole = RNG.integers(0, 256, (2, 9, 8, 1)).astype(dtype)
        for name in ("rgb", "bgr"):
            word = f"{name} {dtype.__name__}"
            nv12, i420 = getattr(opset8, f"nv12_to_{name}"), getattr(opset8, f"i420_to_{name}")
            yield Operation(f"nv12 {word}", nv12, (planes[0], planes[1]))
            yield Operation(f"nv12 one plane {word}", nv12, (whole,))
            yield Operation(f"i420 {word}", i420, (planes[0], planes[2], planes[3]))
            yield Operation(f"i420 one plane {word}", i420, (whole,))


def _patches() -> Iterable[Any]:
    x = f(2, 3, 9, 10)
    for pad in ("valid", "same_upper", "same_lower"):
        for sizes, strides, rates in (([3, 2], [2, 3], [1, 2]), ([1, 1], [1, 1], [1, 1]), ([2, 4], [5, 5], [3, 1])):
            yield Operation(
                f"patches {pad} {sizes}",
                lambda x, a=(sizes, strides, rates, pad): opset3.extract_image_patches(x, *a),
                (x,),
            )


def _decoders() -> Iterable[Any]:
    steps, batch, classes = 9, 4, 4
    logits = f(steps, batch, classes)
    mask = np.ones((steps, batch), np.float32)
    for row, length in enumerate((9, 5, 1, 7)):
        mask[length:, row] = 0
    for merge in (True, False):
        yield Operation(f"ctc {merge}", lambda x, m, k=merge: opset1.ctc_greedy_decoder(x, m, k), (logits, mask))
        rows, lengths = logits.transpose(1, 0, 2).copy(), np.int32([9, 5, 1, 7])
        yield Operation(
            f"ctc lengths {merge}", lambda x, n, k=merge: opset6.ctc_greedy_decoder_seq_len(x, n, None, k), (rows, lengths)
        )
        yield Operation(
            f"ctc blank {merge}",
            lambda x, n, k=merge: opset6.ctc_greedy_decoder_seq_len(x, n, c(1, np.int32), k, "i64", "i64"),
            (rows, lengths),
        )


FAMILIES = (_cameras, _patches, _decoders)
