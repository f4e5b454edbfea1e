"""Signals, windows of signals, boxes."""

import numpy as np

from random_graphs.builder import Builder, Draft, makes


@makes("HannWindow", "HammingWindow", "BlackmanWindow")
def signal_window(b: Builder) -> Draft:
    size = np.array(b.integer(1, 9), b.one([np.int32, np.int64]))
    return Draft([b.constant(size)], {"periodic": b.integer(0, 1), "output_datatype": b.one([None, 1, 11])})


@makes("DFT")
def dft(b: Builder) -> Draft:
    name = b.fresh(b.one(b.types()), (b.integer(1, 2), b.integer(2, 6), b.one([1, 2])), special=0)
    real = b.array(name).shape[-1] == 1
    attributes = {"axis": 1, "onesided": b.integer(0, 1) if real else 0, "inverse": 0 if real else b.integer(0, 1)}
    if b.has("axis"):
        return Draft([name], attributes)
    return Draft([name, "", b.constant(1, np.int64)], attributes)


@makes("NonMaxSuppression")
def non_max_suppression(b: Builder) -> Draft:
    n, boxes, classes = b.integer(1, 2), b.integer(1, 6), b.integer(1, 2)
    corners = b.rng.uniform(0, 1, (n, boxes, 2))
    places = np.concatenate([corners, corners + b.rng.uniform(0.1, 0.6, corners.shape)], axis=2).astype(np.float32)
    scores = b.rng.uniform(0, 1, (n, classes, boxes)).astype(np.float32)
    limits = [b.constant(3, np.int64), b.constant(0.3, np.float32), b.constant(0.2, np.float32)]
    return Draft([b.data(places), b.data(scores), *limits], {"center_point_box": b.integer(0, 1)})
