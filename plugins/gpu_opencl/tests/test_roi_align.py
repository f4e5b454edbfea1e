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


@pytest.mark.parametrize("channels", [1, 7, 8, 9, 33])
@pytest.mark.parametrize("kind", ["CPU", "GPU"])
def test_channels_around_those_of_a_work_item(bench: Any, kind_device: Any, kind: str, channels: int) -> None:
    """The mean of the samples in a bin of a linear picture is what that has in the middle of the bin."""
    op = bench.op("RoiAlign", output_height=2, output_width=3, sampling_ratio=2, coordinate_transformation_mode="half_pixel")
    of_images, of_channels, of_rows = np.arange(2.0) * 100, np.arange(channels) * 10.0, np.arange(SIDE) * 0.5
    plane = of_channels[:, None, None] + of_rows[:, None] + np.arange(SIDE) * 0.25
    x = (of_images[:, None, None, None] + plane).astype(np.float32)
    boxes, images = np.array([[1, 2, 7, 6], [2, 1, 5, 7], [1, 1, 4, 3]], np.float32), np.array([1, 0, 1])
    graph, feeds = bench.single(op, [x, boxes, images])
    (found,) = bench.run(kind_device(kind), graph, feeds)
    left, top, right, bottom = (boxes.astype(np.float64) - 0.5).T
    rows = top[:, None] + (bottom - top)[:, None] * (np.arange(2) + 0.5) / 2
    columns = left[:, None] + (right - left)[:, None] * (np.arange(3) + 0.5) / 3
    expected = of_images[images][:, None, None, None] + of_channels[:, None, None] + 0.5 * rows[:, None, :, None]
    np.testing.assert_allclose(found, expected + 0.25 * columns[:, None, None, :], rtol=1e-6)
