"""A clean environment with the core, the operators, two devices, two model formats and the commands, as authors have it."""

import json
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
def installed(built: Build, new_environment: Callable[[Path], Any], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The environment: wheels, installed into nothing."""
    environment = new_environment(tmp_path_factory.mktemp("author") / "env")
    environment.install(*(f"{built(folder)[0]}{extra}" for folder, extra in PACKAGES.items()))
    return environment


@pytest.fixture
def environment(installed: Any) -> Iterator[Any]:
    """The environment; what a test installs on top goes again afterwards."""
    before = distributions(installed)
    yield installed
    added = distributions(installed) - before
    if added:
        installed.uninstall(*added)


def distributions(environment: Any) -> set[str]:
    listed = environment.python("-m", "pip", "list", "--format=json").stdout
    return {one["name"] for one in json.loads(listed)}
