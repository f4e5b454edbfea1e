"""Resize to the nearest elements: those that the definition names, moved axis by axis in any order."""

import numpy as np
import pytest

from dovetail.device import TypedNode
from dovetail_ops_onnx.resize import Resize

MODES = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric"]


@pytest.mark.parametrize("coordinates", MODES)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.float16, np.bool_])
def test_nearest(bench, coordinates, nearest, dtype):
    """Each axis larger, smaller or as it is. The elements of an axis are those of an axis by itself, as the reference has it."""
    rng = np.random.default_rng(len(coordinates) + len(nearest))
    op = Resize(mode="nearest", coordinate_transformation_mode=coordinates, nearest_mode=nearest)
    for _ in range(12):
        shape, factors = rng.integers(1, 7, 4), rng.choice([1, 1, 2, 3, 0.5, 1.7], 4)
        sizes = np.maximum(1, shape * factors).astype(np.int64)
        x = rng.integers(0, 2 if dtype == np.bool_ else 255, shape).astype(dtype)
        want = x
        for axis, size in enumerate(sizes):
            places = op.reference(np.arange(shape[axis]), None, None, sizes[axis : axis + 1])
            assert len(places) == size
            want = want[(slice(None),) * axis + (places,)]
        got = bench.run_one(op, (x, None, None, sizes), bench.kernel("resize", "nearest"), constants=(3,))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("scale", [1, 2, 4])
def test_repeated_columns(bench, scale):
    x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    op = Resize(mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    scales = np.array([1, 1, scale, scale], np.float32)
    got = bench.run_one(op, (x, None, scales), bench.kernel("resize", "nearest"), constants=(2,))
    np.testing.assert_array_equal(got, x.repeat(scale, 2).repeat(scale, 3))


def test_empty(bench):
    op, scales = Resize(mode="nearest"), np.array([1, 1, 2], np.float32)
    got = bench.run_one(op, (np.zeros((0, 2, 3), np.float32), None, scales), bench.kernel("resize", "nearest"), constants=(2,))
    assert got.shape == (0, 2, 6)


@pytest.mark.parametrize("attributes", [{"mode": "linear"}, {"coordinate_transformation_mode": "tf_crop_and_resize"}])
def test_what_is_left_to_the_reference(bench, attributes):
    x, roi = np.zeros((1, 2, 4), np.float32), np.array([0, 0, 0, 1, 1, 0.5], np.float32)
    graph = bench.single(Resize(**attributes), [x, roi, np.array([1, 1, 2], np.float32)], (1, 2))[0]
    (kernel,) = bench.kernels("resize")
    assert kernel.supports(TypedNode.of(graph.nodes[0], graph)).reason.name == "ATTRIBUTE"
