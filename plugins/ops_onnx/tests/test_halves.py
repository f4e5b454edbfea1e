"""Conversion between float16 and float32 gives NumPy's bits: for all halves, next to all ties, and for any bits.

Of NaN the sign is compared only: processors make a signalling NaN quiet.
"""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail import Core, DType, GraphBuilder
from dovetail_ops_onnx import _f16c, _halves
from dovetail_ops_onnx._casts import to_integer, write_integers
from dovetail_ops_onnx._elementwise import converted
from dovetail_ops_onnx.cast import Cast

ALL = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
FINITE = np.sort(ALL[np.isfinite(ALL)].astype(np.float64))
TIES = ((FINITE[1:] + FINITE[:-1]) / 2).astype(np.float32)

HALVES = {
    "all": ALL,
    "finite": FINITE.astype(np.float16),
    "infinite in the last block": np.append(np.tile(ALL[:0x7C00], 2), np.float16(np.inf)),
    "transposed": np.random.default_rng(0).permutation(ALL).reshape(128, 512).T,
    "every third": np.random.default_rng(1).permutation(ALL)[::3],
    "few": ALL[::100],
    "none": ALL[:0].reshape(3, 0),
}
SINGLES = {
    "ties": TIES,
    "above ties": np.nextafter(TIES, np.float32(np.inf)),
    "below ties": np.nextafter(TIES, np.float32(-np.inf)),
    "halves": FINITE.astype(np.float32),
    "any bits": np.random.default_rng(2).integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32),
    "tiny": np.float32(2) ** -np.linspace(10, 149, 20_001, dtype=np.float32),
    "large": np.linspace(-70_000, 70_000, 200_001, dtype=np.float32),
    "transposed": np.random.default_rng(3).standard_normal((100, 333), np.float32).T,
    "few": TIES[::100],
    "none": TIES[:0].reshape(0, 2),
}


@pytest.fixture(params=["by the processor", "by arithmetic"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by arithmetic":
        monkeypatch.setattr(_f16c, "native", lambda: None)
    elif _f16c.native() is None:
        pytest.skip("no instructions for float16, or no executable memory")


both_ways = pytest.mark.usefixtures("way")


def bits(x: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isnan(x), np.copysign(x.dtype.type(np.nan), x), x).view(f"u{x.itemsize}")


@both_ways
@pytest.mark.parametrize("name", HALVES)
def test_widened(name: str) -> None:
    halves = HALVES[name]
    found, wanted = _halves.widened(halves), halves.astype(np.float32)
    assert found.shape == halves.shape
    np.testing.assert_array_equal(bits(found), bits(wanted))


@both_ways
@pytest.mark.parametrize("name", SINGLES)
def test_narrowed(name: str) -> None:
    with np.errstate(all="ignore"):
        found, wanted = _halves.narrowed(SINGLES[name]), SINGLES[name].astype(np.float16)
    assert found.shape == SINGLES[name].shape
    np.testing.assert_array_equal(bits(found), bits(wanted))


@both_ways
@pytest.mark.parametrize("size", [0, 1, 2, 15, 16, 17, 31, 32, 33, 1000, 40_000])
def test_conversion_writes_what_it_should_and_nothing_else(size: int) -> None:
    """To and from odd addresses, with bytes around the result that must stay."""
    halves = np.resize(FINITE.astype(np.float16), size)
    for source, wanted in ((halves, halves.astype(np.float32)), (halves.astype(np.float32), halves)):
        src = np.zeros(source.nbytes + 1, np.uint8)[1:].view(source.dtype)
        src[...] = source
        memory = np.full(wanted.nbytes + 3, 7, np.uint8)
        dst = memory[1:-2].view(wanted.dtype)
        _halves.conversion(src, dst)()
        np.testing.assert_array_equal(dst, wanted)
        assert memory[[0, -2, -1]].tolist() == [7, 7, 7]


@both_ways
@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.uint16, np.int32, np.uint64, np.int64])
def test_whole_numbers_become_halves_in_one_rounding(dtype: type) -> None:
    low, high = (0, 1) if dtype is np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    values = np.array([low, *range(max(low, -70_000), min(high, 70_000)), high], dtype)
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float64).astype(np.float16)
        found = converted(values, np.dtype(np.float16))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("wide", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("narrow", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64])
@pytest.mark.parametrize("beyond", [False, True])
def test_to_integer(wide: type, narrow: type, beyond: bool) -> None:
    """Around both bounds and zero, as Python's integers have it; `beyond` with values that are out of range and NaN."""
    low, high = (int(bound) for bound in (np.iinfo(narrow).min, np.iinfo(narrow).max))
    with np.errstate(over="ignore"):
        near = np.array([low, high, 0, low + 1, high - 1, high // 2], wide)
        steps = [near, *(np.nextafter(near, wide(end)) for end in (-np.inf, np.inf)), near + wide(0.75), near - wide(0.75)]
    values = np.concatenate(steps)
    inside = np.array([np.isfinite(v) and low <= int(v) <= high for v in values])
    values = np.append(values, [np.nan, np.inf, -np.inf]).astype(wide) if beyond else values[inside]
    wanted = [0 if np.isnan(v) else (low if v < 0 else high) if np.isinf(v) else min(high, max(low, int(v))) for v in values]
    with np.errstate(invalid="ignore"):
        found, written = to_integer(values, np.dtype(narrow)), np.empty(values.shape, narrow)
        write_integers(written, values)
    assert found.dtype == narrow
    assert found.tolist() == written.tolist() == wanted


@pytest.mark.parametrize("narrow", [np.int64, np.uint64])
def test_write_integers_in_parts(narrow: type, rng: np.random.Generator) -> None:
    values = rng.uniform(0, 1e6, (3, 16_001)).astype(np.float32)
    written = np.empty(values.shape, narrow)
    write_integers(written, values)
    np.testing.assert_array_equal(written, np.floor(values.astype(np.float64)))


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("target", [DType.INT32, DType.INT64, DType.UINT8])
def test_cast_writes_integers_into_the_result(device: str, target: DType) -> None:
    g = GraphBuilder()
    model = g.model([g.node(Cast(to=target), g.input("x", "float32", (4,)))])
    with Core(config=False).compile_model(model, device) as compiled:
        assert compiled(np.array([1.9, 0.5, np.nan, 255], np.float32))[0].tolist() == [1, 0, 0, 255]
        assert [node.kernel for node in compiled.report().nodes] == ["to_integers"]


@pytest.mark.skipif(_f16c.native() is None, reason="no instructions for float16, or no executable memory")
def test_machine_code_stays_while_the_process_ends() -> None:
    """A thread may run it until then: here a function that does not return."""
    code = """
import ctypes, threading, time
from dovetail_ops_onnx import _f16c
_f16c._WIDEN = bytes.fromhex("c60601 ebfe")  # mov byte [rsi], 1; jmp to itself
began = (ctypes.c_char * 1)()
threading.Thread(target=_f16c.native()[0], args=(0, ctypes.addressof(began), 0), daemon=True).start()
while not began[0][0]:
    time.sleep(0.001)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
