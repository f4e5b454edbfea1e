"""Inputs from files and at random; outputs to .npz."""

import sys
import zipfile
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from PIL import Image

from dovetail.cli._inputs import random_tensor, read_inputs, write_npz
from dovetail.errors import InputError, UsageError
from dovetail.graph import DType, TensorType

X = np.arange(6, dtype=np.float32).reshape(2, 3)
INPUTS = {"x": TensorType(DType.FLOAT32, ("N", 3)), "a=b": TensorType(DType.INT64, (2,))}
ONE = {"x": INPUTS["x"]}


def picture_type(*shape: Any, dtype: DType = DType.FLOAT32) -> dict[str, TensorType]:
    return {"image": TensorType(dtype, shape)}


def test_npy_by_name_and_for_the_only_input(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.testing.assert_array_equal(read_inputs(INPUTS, [f"x={tmp_path}/x.npy", "a=b=random"], 0)["x"], X)
    np.testing.assert_array_equal(read_inputs(ONE, [f"{tmp_path}/x.npy"], 0)["x"], X)


def test_npz_names_several_inputs(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", **{"x": X, "a=b": np.array([1, 2])})
    found = read_inputs(INPUTS, [f"{tmp_path}/all.npz"], 0)
    assert set(found) == {"x", "a=b"}
    np.testing.assert_array_equal(found["x"], X)


def test_one_array_of_an_npz_for_a_named_input(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", other=X)
    np.testing.assert_array_equal(read_inputs(ONE, [f"x={tmp_path}/one.npz"], 0)["x"], X)
    np.savez(tmp_path / "two.npz", x=X, y=X + 1)
    np.testing.assert_array_equal(read_inputs(ONE, [f"x={tmp_path}/two.npz"], 0)["x"], X)
    with pytest.raises(InputError, match="none of them is called 'a=b': x, y"):
        read_inputs(INPUTS, [f"a=b={tmp_path}/two.npz"], 0)


def test_names_and_files_may_hold_equals_signs(tmp_path: Path) -> None:
    np.save(tmp_path / "k=v.npy", X)
    found = read_inputs(INPUTS, [f"a=b={tmp_path}/k=v.npy", "x=random"], 0)
    np.testing.assert_array_equal(found["a=b"], X)
    assert set(read_inputs(ONE, [f"{tmp_path}/k=v.npy"], 0)) == {"x"}


def test_random_fills_what_no_file_gives_and_follows_the_seed(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    found = read_inputs(INPUTS, ["random", f"x={tmp_path}/x.npy"], 3)
    np.testing.assert_array_equal(found["x"], X)
    assert found["a=b"].dtype == np.int64
    first, again, other = (read_inputs(ONE, ["x=random"], seed)["x"] for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64, DType.INT8, DType.UINT64, DType.BOOL])
def test_random_tensors_have_type_and_range(dtype: DType) -> None:
    array = random_tensor(TensorType(dtype, ("N", 50, None)), np.random.default_rng(0))
    assert (array.dtype, array.shape) == (dtype.numpy, (1, 50, 1))
    wide = array.astype(np.float64)
    assert 0 <= wide.min() < wide.max() <= 1
    assert dtype.is_float or set(np.unique(wide)) == {0, 1}


def test_an_input_without_value_is_named() -> None:
    with pytest.raises(click.UsageError, match="No value for input 'a=b': give -i a=b=FILE, or -i random"):
        read_inputs(INPUTS, ["x=random"], 0)


def test_random_strings_are_refused() -> None:
    with pytest.raises(UsageError, match="no random values are defined for string"):
        random_tensor(TensorType(DType.STRING, (1,)), np.random.default_rng(0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("X=random", "no input 'X'. Did you mean 'x'"),
        ("x.csv", "the model has 2 inputs, so name one: x, a=b"),
        ("x=x.csv", r"files of type '.csv' cannot be read; accepted: .npz, .npy, .json, .png, .jpg, .jpeg, or 'random'"),
    ],
)
def test_options_that_cannot_be_meant(given: str, message: str) -> None:
    with pytest.raises(click.UsageError, match=message):
        read_inputs(INPUTS, [given], 0)


@pytest.mark.parametrize("content", [b"", b"not numpy", b"PK\x03\x04broken", b"\x93NUMPY\x01\x00"])
@pytest.mark.parametrize("suffix", ["npy", "npz"])
def test_files_that_hold_no_arrays(tmp_path: Path, suffix: str, content: bytes) -> None:
    file = tmp_path / f"x.{suffix}"
    file.write_bytes(content)
    with pytest.raises(InputError, match=f"x.{suffix}"):
        read_inputs(ONE, [f"x={file}"], 0)


def _encrypted(content: bytes) -> bytes:
    """An archive whose directory asks for strong encryption, which zipfile has no code for."""
    return content[: (at := content.index(b"PK\x01\x02") + 8)] + b"\x40" + content[at + 1 :]


def _outside(content: bytes) -> bytes:
    """An archive whose directory is said to be longer than it is, so that its members begin before the file."""
    at = content.index(b"PK\x05\x06") + 16
    return content[:at] + (int.from_bytes(content[at : at + 4], "little") + 4096).to_bytes(4, "little") + content[at + 4 :]


@pytest.mark.parametrize("damaged", [_encrypted, _outside])
def test_damaged_archives(tmp_path: Path, damaged: Any) -> None:
    np.savez(tmp_path / "x.npz", x=X)
    (tmp_path / "x.npz").write_bytes(damaged((tmp_path / "x.npz").read_bytes()))
    with pytest.raises(InputError, match=r"x\.npz is damaged"):
        read_inputs(ONE, [f"x={tmp_path}/x.npz"], 0)


def test_array_with_an_unfinished_header(tmp_path: Path) -> None:
    (tmp_path / "x.npy").write_bytes(b"\x93NUMPY\x01\x00\x05\x00((((\n")
    with pytest.raises(InputError, match=r"x\.npy is damaged"):
        read_inputs(ONE, [f"x={tmp_path}/x.npy"], 0)


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(
        InputError, match=r"plain arrays\n  write it by numpy.save or numpy.savez; arrays of objects are not read$"
    ):
        read_inputs(ONE, [f"x={tmp_path}/x.npy"], 0)


def test_wrong_suffix_is_named(tmp_path: Path) -> None:
    with open(tmp_path / "x.npz", "wb") as stream:
        np.save(stream, X)
    with pytest.raises(InputError, match=r"(?s)single array.*suffix .npy"):
        read_inputs(ONE, [f"x={tmp_path}/x.npz"], 0)
    with open(tmp_path / "y.npy", "wb") as stream:
        np.savez(stream, x=X)
    with pytest.raises(InputError, match=r"(?s)archive.*suffix .npz"):
        read_inputs(ONE, [f"x={tmp_path}/y.npy"], 0)


def test_grey_picture_for_a_float_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4) * 20
    Image.fromarray(pixels).save(tmp_path / "p.png")
    found = read_inputs(picture_type("N", 1, 3, 4), [f"{tmp_path}/p.png"], 0)["image"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, pixels[None, None] / 255, atol=1e-7)
    assert "0..1" in capsys.readouterr().err


def test_colour_picture_with_channels_last_is_scaled(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.new("RGB", (8, 6), (10, 200, 30)).save(tmp_path / "p.png")
    found = read_inputs(picture_type(1, 4, 5, 3, dtype=DType.UINT8), [f"image={tmp_path}/p.png"], 0)["image"]
    assert (found.dtype, found.shape) == (np.uint8, (1, 4, 5, 3))
    np.testing.assert_array_equal(found, np.broadcast_to(np.array([10, 200, 30], np.uint8), found.shape))
    assert "8 x 6; scaled to 5 x 4" in capsys.readouterr().err


def test_picture_problems(tmp_path: Path) -> None:
    (tmp_path / "p.png").write_bytes(b"no picture")
    with pytest.raises(InputError, match="not a picture"):
        read_inputs(picture_type(1, 1, 3, 4), [f"{tmp_path}/p.png"], 0)
    with pytest.raises(InputError, match=r"(?s)float32\[1, 5\], which takes no picture.*channels"):
        read_inputs(picture_type(1, 5), [f"{tmp_path}/p.png"], 0)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_truncated_pictures(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"p.{suffix}"
    Image.new("L", (4, 3)).save(file)
    content = file.read_bytes()
    for length in range(len(content) - 20):
        file.write_bytes(content[:length])
        with pytest.raises(InputError, match=f"p.{suffix} is damaged, or not a picture"):
            read_inputs(picture_type(1, 1, 3, 4), [f"{file}"], 0)


def test_missing_picture(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"p\.png"):
        read_inputs(picture_type(1, 1, 3, 4), [f"{tmp_path}/p.png"], 0)


def test_pillow_missing_is_told_with_the_pip_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"(?s)needs the package pillow.*pip install pillow"):
        read_inputs(picture_type(1, 1, 3, 4), [f"{tmp_path}/p.png"], 0)


def test_outputs_keep_their_names(tmp_path: Path) -> None:
    arrays = {"file": X, "a/b:0": X.T, "": np.float32(3), "Größe": np.zeros((0, 2), np.int8)}
    write_npz(str(tmp_path / "out.npz"), arrays)
    with np.load(tmp_path / "out.npz", allow_pickle=False) as loaded:
        assert set(loaded.files) == set(arrays)
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name], array)
            assert loaded[name].dtype == np.asarray(array).dtype


def test_output_names_cannot_be_cut_short(tmp_path: Path) -> None:
    write_npz(str(tmp_path / "out.npz"), {"a\0b": X, "a": X + 1})
    assert sorted(zipfile.ZipFile(tmp_path / "out.npz").namelist()) == ["a.npy", "a\\x00b.npy"]
