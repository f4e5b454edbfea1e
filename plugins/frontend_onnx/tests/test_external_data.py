"""External data is found beside the model and nowhere else."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from dovetail.frontend import FormatError
from dovetail.graph import source

WEIGHTS = np.arange(6, dtype=np.float32).reshape(2, 3)
Save = Callable[..., Path]


def _external(name: str = "w", dims: tuple[int, ...] = (2, 3), data_type: int = 1, **entries: str) -> TensorProto:
    tensor = TensorProto(name=name, dims=dims, data_type=data_type, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return tensor


@pytest.fixture
def save(build: Callable[..., ModelProto], saved: Callable[[ModelProto], Path]) -> Save:
    """`save(tensor, ...)`: the path of a model whose outputs are these tensors, with the weights in `data.bin` beside it."""

    def write(*tensors: TensorProto) -> Path:
        path = saved(build([], [], [t.name for t in tensors], initializer=tensors))
        (path.parent / "data.bin").write_bytes(b"1234" + WEIGHTS.tobytes())
        return path

    return write


def test_what_onnx_saves_is_read(read: Any, build: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"w{i}": rng.standard_normal((i, 7)).astype(np.float32) for i in range(5)}
    model = build([], [], list(arrays), initializer=[numpy_helper.from_array(a, n) for n, a in arrays.items()])
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    constants = read(tmp_path / "m.onnx").graph.constants
    for name, array in arrays.items():
        np.testing.assert_array_equal(constants[name], array)
        assert not constants[name].flags.writeable


@pytest.mark.parametrize("entries", [{"offset": "4", "length": "24"}, {"offset": "4"}, {"offset": "04", "length": "024"}])
def test_offset_and_length(read: Any, save: Save, entries: dict[str, str]) -> None:
    path = save(_external(location="./data.bin", **entries))
    np.testing.assert_array_equal(read(path).graph.constants["w"], WEIGHTS)


def test_checksum_and_unknown_keys_are_ignored(read: Any, save: Save) -> None:
    path = save(_external(location="data.bin", offset="4", checksum="0", prepacked_0="1"))
    np.testing.assert_array_equal(read(path).graph.constants["w"], WEIGHTS)


def test_in_a_folder_below(read: Any, save: Save) -> None:
    path = save(_external(location="a/b/data.bin", offset="4"))
    (path.parent / "a/b").mkdir(parents=True)
    (path.parent / "data.bin").rename(path.parent / "a/b/data.bin")
    np.testing.assert_array_equal(read(path).graph.constants["w"], WEIGHTS)


def test_tensors_of_one_region_share_it(read: Any, save: Save) -> None:
    constants = read(save(*(_external(f"w{i}", location="data.bin", offset="4") for i in range(50)))).graph.constants
    assert all(np.shares_memory(constants["w0"], other) for other in constants.values())


def test_overlapping_regions_cannot_multiply(read: Any, save: Save) -> None:
    tensors = [_external(f"w{i}", (20,), 2, location="data.bin", offset=str(i)) for i in range(4)]
    with pytest.raises(FormatError, match=r"'w2'.*overlap: together they are more than twice the file"):
        read(save(*tensors))


def test_in_attributes_and_sub_graphs(read: Any, save: Save, build: Any, saved: Any) -> None:
    path = save()
    saved(build([onnx.helper.make_node("Constant", [], ["y"], value=_external(location="data.bin", offset="4"))], [], ["y"]))
    np.testing.assert_array_equal(read(path).graph.constants["y"], WEIGHTS)


def test_packed_elements(read: Any, save: Save) -> None:
    constant = read(save(_external(dims=(7,), data_type=TensorProto.UINT4, location="data.bin", length="4"))).graph.constants["w"]
    assert constant.astype(np.int32).tolist() == [1, 3, 2, 3, 3, 3, 4]  # "1234" is 0x31 0x32 0x33 0x34


def test_the_model_itself_may_be_a_link(read: Any, save: Save, tmp_path: Path) -> None:
    path = save(_external(location="data.bin", offset="4"))
    (path.parent / "link.onnx").symlink_to(path)
    assert "w" in read(path.parent / "link.onnx").graph.constants


REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "parent": ({"location": "../data.bin"}, "'../data.bin' leaves the model's folder"),
    "parent inside": ({"location": "a/../../data.bin"}, "leaves the model's folder"),
    "folder itself": ({"location": "."}, "leaves the model's folder"),
    "absolute": ({"location": "/etc/passwd"}, "'/etc/passwd' is not a relative POSIX path"),
    "drive": ({"location": "C:data.bin"}, "not a relative POSIX path"),
    "backslash": ({"location": "..\\data.bin"}, "not a relative POSIX path"),
    "empty": ({"location": ""}, "location of the data file is empty"),
    "no location": ({"offset": "4"}, "no valid location"),
    "NUL": ({"location": "a\0b"}, r"location of the data file is 'a\\\\x00b'"),
    "missing": ({"location": "gone.bin"}, "'gone.bin' cannot be opened: No such file"),
    "folder": ({"location": "folder"}, "'folder' cannot be opened: Is a directory"),
    "FIFO": ({"location": "fifo"}, "'fifo' is a FIFO"),
    "linked file": ({"location": "link.bin"}, "'link.bin' cannot be opened"),
    "linked folder": ({"location": "linked/data.bin"}, "'linked/data.bin' cannot be opened"),
    "hard link": ({"location": "hard.bin"}, "'hard.bin' has 2 hard links"),
    "offset past the end": ({"location": "data.bin", "offset": "5"}, "bytes 5 to 29 of 'data.bin', which has 28 bytes"),
    "huge offset": ({"location": "data.bin", "offset": "9" * 19}, "which has 28 bytes"),
    "enormous offset": ({"location": "data.bin", "offset": "9" * 5000}, r"offset '999.*\(5,000 characters\)'"),
    "negative offset": ({"location": "data.bin", "offset": "-4"}, "offset '-4'"),
    "offset in words": ({"location": "data.bin", "offset": "four"}, "offset 'four'"),
    "other digits": ({"location": "data.bin", "offset": "٤"}, "offset '٤'"),
    "short length": ({"location": "data.bin", "length": "20"}, "length of 20 bytes; dims and data type need 24"),
    "long length": ({"location": "data.bin", "length": "28"}, "length of 28 bytes"),
    "negative length": ({"location": "data.bin", "length": "-24"}, "length '-24'"),
    "length with a sign": ({"location": "data.bin", "length": "+24"}, r"length '\+24'"),
    "long name": ({"location": "n" * 100_000}, r"'nnn.*\(100,000 characters\)' cannot be opened"),
}


@pytest.mark.parametrize("by_descriptor", [True, False])
@pytest.mark.parametrize("name", REFUSED)
def test_refused(read: Any, save: Save, monkeypatch: pytest.MonkeyPatch, name: str, by_descriptor: bool) -> None:
    monkeypatch.setattr(source, "_WALKS_BY_DESCRIPTOR", by_descriptor)
    entries, message = REFUSED[name]
    path = save(_external(**entries))
    folder = path.parent
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    (folder / "real").mkdir()
    (folder / "real/data.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "linked").symlink_to("real")
    (folder / "link.bin").symlink_to("data.bin")
    (folder / "original.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "hard.bin").hardlink_to(folder / "original.bin")
    with pytest.raises(FormatError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert "initializer 'w'" in str(caught.value)


def test_without_descriptors_good_data_is_read_too(read: Any, save: Save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "_WALKS_BY_DESCRIPTOR", False)
    np.testing.assert_array_equal(read(save(_external(location="data.bin", offset="4"))).graph.constants["w"], WEIGHTS)


def test_twice_the_same_key(read: Any, save: Save) -> None:
    tensor = _external(location="data.bin", offset="4")
    tensor.external_data.add(key="location", value="other.bin")
    with pytest.raises(FormatError, match="key 'location' twice"):
        read(save(tensor))


def test_data_in_both_places(read: Any, save: Save) -> None:
    tensor = _external(location="data.bin", offset="4")
    tensor.raw_data = WEIGHTS.tobytes()
    with pytest.raises(FormatError, match="external data and raw_data"):
        read(save(tensor))


def test_strings_have_no_external_form(read: Any, save: Save) -> None:
    with pytest.raises(FormatError, match="string tensor cannot have external data"):
        read(save(_external(data_type=TensorProto.STRING, location="data.bin")))


def test_bytes_have_no_folder(read: Any, save: Save) -> None:
    with pytest.raises(
        FormatError, match=r"in the file 'data.bin', but the model was given as bytes(.|\n)*give the model's path"
    ):
        read(save(_external(location="data.bin", offset="4")).read_bytes())


def test_files_are_closed_after_an_error(read: Any, save: Save) -> None:
    path = save(_external("good", location="data.bin", offset="4"), _external("bad", location="data.bin", offset="5"))
    before = set(os.listdir("/dev/fd"))
    with pytest.raises(FormatError):
        read(path)
    assert set(os.listdir("/dev/fd")) == before
