"""Graphs of searches, scattered slices, deformable windows, signals in frames; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset1, opset2, opset3, opset8, opset13, opset15, opset16

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c, RNG = (_GRAPHS[name] for name in ("Operation", "f", "i", "c", "RNG"))


def _searches() -> Iterable[Any]:
    x = np.float32([[-3, -1, 0, 0.5], [1, 1.5, 2, 9]])
    for right in (True, False):
        for kind in ("i32", "i64"):
            bounds = c([-1, 0, 1.5, 2], np.float32)
            yield Operation(f"bucketize {right} {kind}", lambda x, r=right, k=kind, b=bounds: opset3.bucketize(x, b, k, r), (x,))
    yield Operation("bucketize none", lambda x: opset3.bucketize(x, c(np.zeros(0), np.float32)), (x,))
    ordered, values = np.sort(i(3, 6), axis=1), i(3, 4)
    for right in (True, False):
        yield Operation(f"search {right}", lambda s, v, r=right: opset15.search_sorted(s, v, r), (ordered, values))
    yield Operation("search one list", opset15.search_sorted, (np.sort(f(7)), f(2, 3, 4)))


def _scatters() -> Iterable[Any]:
    data = f(4, 5, 3)
    for start, stop, step, axes, dims in (
        ([1, 0], [4, 9], [2, 2], [0, 1], (2, 3, 3)),
        ([-1], [-9], [-2], [1], (4, 3, 3)),
        ([0, 1, 2], [9, 3, 3], [3, 1, 1], None, (2, 2, 1)),
    ):
        bounds = [c(numbers) for numbers in (start, stop, step)] + ([] if axes is None else [c(axes)])
        yield Operation(f"slice scatter {start}", lambda x, u, b=bounds: opset15.slice_scatter(x, u, *b), (data, f(*dims)))


def _deformable() -> Iterable[Any]:
    x, weights, offsets, mask = f(2, 4, 6, 5), f(6, 2, 3, 3), f(2, 36, 3, 3), f(2, 18, 3, 3, low=0)
    window = ([2, 2], [1, 1], [1, 1], [1, 1])

    def convolved(x: Any, o: Any, w: Any, m: Any = None) -> Any:
        return opset8.deformable_convolution(x, o, w, *window, m, "explicit", 2, 2, True)

    yield Operation("deformable", convolved, (x, offsets, weights))
    yield Operation("deformable mask", convolved, (x, offsets, weights, mask))
    given = {"strides": [2, 1], "dilations": [1, 2], "pads_begin": [1, 0], "pads_end": [0, 2]}
    yield Operation("col2im", lambda x: opset15.col2im(x, c([5, 4]), c([2, 2]), **given), (f(3, 8, 12),))
    yield Operation("col2im alone", lambda x: opset15.col2im(x, c([4, 4]), c([2, 2])), (f(8, 9),))
    yield Operation("grn", lambda x: opset1.grn(x, 0.3), (f(2, 3, 4, 5),))
    rois = np.float32([[0, 0, 0, 4, 5], [1, 1, 2, 3, 3], [0, 2, 1, 2, 9]])
    yield Operation("roi pooling", lambda x, r: opset2.roi_pooling(x, r, [2, 3], 0.7, "max"), (f(2, 3, 8, 9), rois))


def _signals() -> Iterable[Any]:
    for frames_first in (False, True):
        for signal, width in ((f(2, 19), 8), (f(2, 19), 5), (f(23), 8)):
            yield Operation(
                f"stft {signal.ndim} {width} {frames_first}",
                lambda x, w, t=frames_first: opset15.stft(x, w, c(8), c(3), t),
                (signal, f(width)),
            )


def _spectra() -> Iterable[Any]:
    for center in (False, True):
        for normalized in (False, True):
            for length in (None, 9, 40):
                size = () if length is None else (c(length),)
                for width, dims in ((8, (2, 5, 6, 2)), (5, (5, 4, 2))):
                    yield Operation(
                        f"istft {center} {normalized} {length} {width}",
                        lambda x, w, o=(center, normalized, *size): opset16.istft(x, w, c(8), c(3), *o),
                        (f(*dims), f(width, low=0.1)),
                    )


def _segments() -> Iterable[Any]:
    for mode in ("ZERO", "LOWEST"):
        for data in (f(5, 3), f(5), i(5, 2, 2)):
            ids = c([0, 0, 2, 5, 5], np.int32)
            for count in (None, 4, 8):
                yield Operation(
                    f"segment max {mode} {data.dtype} {data.ndim} {count}",
                    lambda x, n=count, m=mode, s=ids: opset16.segment_max(x, s, None if n is None else c(n), fill_mode=m),
                    (data,),
                )


def _bytes() -> Iterable[Any]:
    numbers = np.float32([1, 500, -500, 448, 449, 0.3, 1e-3, 1e9, -0.0, 17.3])
    for kind in ("f8e4m3", "f8e5m2"):
        yield Operation(
            f"fake convert {kind}",
            lambda x, k=kind: opset13.fake_convert(x, c(1, np.float32), destination_type=k),
            (numbers,),
        )
        given = c([[2], [0.5]], np.float32), c([[0.25], [-1]], np.float32)
        yield Operation(
            f"fake convert shifted {kind}",
            lambda x, k=kind, g=given: opset13.fake_convert(x, *g, destination_type=k),
            (f(2, 30),),
        )


FAMILIES = (_searches, _scatters, _deformable, _signals, _spectra, _segments, _bytes)
