"""RoiAlign of boxes that reach far beyond the picture: samples outside take no time, and count in the mean."""

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo

SIDE, BINS = 8, 2


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("end", [64.0, 4096.0, 2.0**24])
def test_boxes_beyond_the_picture(bench: Any, info: DeviceInfo, mode: str, end: float) -> None:
    """Ones are the sum of the samples inside, out of one for each element of a bin."""
    sizes = {"output_height": BINS, "output_width": BINS}
    op = bench.op("RoiAlign", mode=mode, coordinate_transformation_mode="output_half_pixel", **sizes)
    g = dovetail.GraphBuilder()
    x, boxes = g.input("x", "float32", [1, 1, SIDE, SIDE]), g.input("boxes", "float32", [1, 4])
    model = g.model([g.node(op, x, boxes, g.constant(np.zeros(1, np.int64)))])
    given = {"x": np.ones((1, 1, SIDE, SIDE), np.float32), "boxes": np.array([[0, 0, end, end]], np.float32)}
    with dovetail.Core(config=False) as core, core.compile_model(model, info.name, {"TIME_LIMIT": 60}) as compiled:
        (result,) = compiled(given).values()
    if mode == "max":  # of the last sample inside, at 7.5, the last element alone is the neighbour
        np.testing.assert_allclose(result[0, 0], [[1, 0], [0, 0]], rtol=1e-6)
    else:
        np.testing.assert_allclose(result[0, 0], [[(SIDE / (end / BINS)) ** 2, 0], [0, 0]], rtol=1e-5)
