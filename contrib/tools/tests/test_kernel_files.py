"""Finding kernel files by their stem."""

from pathlib import Path

import pytest

from dovetail.plugins import PluginRecord
from dovetail_tools.kernel_files import DevicePackage, device_packages

FILES = {name: [f"{name}.x"] for name in ("conv", "conv_direct", "conv_transpose", "conv_transpose_direct", "convolve", "add")}


@pytest.mark.parametrize(
    ("stem", "files"),
    [
        ("conv", ["conv.x", "conv_direct.x"]),
        ("conv_transpose", ["conv_transpose.x", "conv_transpose_direct.x"]),
        ("add", ["add.x"]),
        ("mul", []),
    ],
)
def test_files_belong_to_the_longest_stem(stem: str, files: list[str]) -> None:
    assert DevicePackage("ANY", "", FILES).kernels(stem, {"conv", "conv_transpose", "add"}) == files


def test_packages_are_searched_without_importing_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "fake_device_package"
    for file in ("kernels/conv.py", "kernels/_shared.py", "cl/conv_tiled.cl", "cl/README.md", "other/conv.py"):
        (package / file).parent.mkdir(parents=True, exist_ok=True)
        (package / file).write_text("raise AssertionError('imported')")
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "kernels" / "_table.py").write_text(
        "raise AssertionError('imported')\nKERNELS = {'add': Sum(), 'conv_sum': Sum()}"
    )
    monkeypatch.syspath_prepend(tmp_path)
    records = [
        PluginRecord(distribution="d", version="1", kind="devices", key="any", value="fake_device_package.plugin:x"),
        PluginRecord(distribution="e", version="1", kind="devices", key="gone", value="no_such_package"),
        PluginRecord(distribution="f", version="1", kind="ops", key="any", value="fake_device_package"),
    ]
    found, gone = device_packages(records)
    assert (found.device, found.provider) == ("ANY", "d 1")
    assert [Path(file).name for file in found.kernels("conv", {"conv", "conv_sum"})] == ["conv.py", "conv_tiled.cl"]
    assert [Path(file).name for file in found.kernels("add", {"add"})] == ["_table.py"]
    assert gone.kernels("conv", {"conv"}) == []
