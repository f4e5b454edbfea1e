"""The `.bin` is mapped: large constants are parts of it, and all have the file's content at any offset."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dovetail.device import aligned
from dovetail.errors import FormatError
from dovetail.frontend import SMALLEST_REGION, ModelSource
from dovetail_frontend_openvino.weights import Weights

COUNT = SMALLEST_REGION // 4
CONTENT = np.random.default_rng(9).standard_normal(3 * COUNT, np.float32).tobytes() + bytes((0, 2, 1))


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    (tmp_path / "m.bin").write_bytes(CONTENT)
    return Weights(ModelSource(tmp_path / "m.xml"), None)


def _attributes(count: int, offset: int, element_type: str = "f32", size: int = 4) -> dict[str, str]:
    return {"element_type": element_type, "shape": str(count), "offset": str(offset), "size": str(size * count)}


@pytest.mark.parametrize("count", [COUNT, COUNT - 1])
@pytest.mark.parametrize("offset", [0, 4, 6, 4 * COUNT])
def test_content(weights: Weights, count: int, offset: int) -> None:
    found = weights.constant(_attributes(count, offset))
    np.testing.assert_array_equal(found.view(np.uint8), np.frombuffer(CONTENT, np.uint8, 4 * count, offset))
    assert not found.flags.writeable


def test_constants_at_one_place_share_memory(weights: Weights) -> None:
    for count in (COUNT, 5):
        assert np.may_share_memory(*(weights.constant(_attributes(count, 8)) for _ in range(2)))


def test_bytes_that_are_no_bool(weights: Weights) -> None:
    found: Any = weights.constant(_attributes(3, len(CONTENT) - 3, "boolean", 1))
    assert found.tolist() == [False, True, True]


def test_a_large_constant_of_a_file_that_changes(tmp_path: Path, weights: Weights) -> None:
    found = weights.constant(_attributes(COUNT, 0))
    status = (tmp_path / "m.bin").stat()
    os.utime(tmp_path / "m.bin", ns=(status.st_atime_ns, status.st_mtime_ns + 10**9))
    with pytest.raises(FormatError, match=r"m\.bin' was changed since the model was read"):
        aligned(found)
