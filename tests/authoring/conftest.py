"""A clean environment with the core, the operators, two devices, two model formats and the commands, as authors have it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Build = Callable[[str], tuple[Path, Path]]

PACKAGES = {
    "core": "[testing]",
    "plugins/ops_onnx": "",
    "plugins/cpu_numpy": "",
    "plugins/gpu_opencl": "[pocl]",
    "plugins/frontend_onnx": "[upgrade]",
    "plugins/frontend_openvino": "",
    "contrib/authoring": "",
    "contrib/tools": "",
    "contrib/views": "",
}
"""Folder -> the extra that is installed: the tutorials make models by onnx. Nothing else of this repository is there."""


@pytest.fixture(scope="session")
def installed(
    built: Build, new_environment: Callable[..., Any], once_for_all: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Any:
    """The environment: wheels, installed into nothing, once for all workers; each has one of its own on top of it."""

    def make(folder: Path) -> None:
        wheels = (f"{built(package)[0]}{extra}" for package, extra in PACKAGES.items())
        new_environment(folder, with_pip=True).install(*wheels)

    return new_environment(tmp_path_factory.mktemp("author") / "env", once_for_all("authors", make))


@pytest.fixture
def environment(installed: Any) -> Iterator[Any]:
    """The environment; what a test installs on top goes again afterwards."""
    yield installed
    if added := installed.distributions():
        installed.uninstall(*added)
