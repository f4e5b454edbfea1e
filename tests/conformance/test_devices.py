"""The conformance kit on the devices that `DOVETAIL_TEST_DEVICES` names, such as a second OpenCL device.

The first device of each type is not among them: the packages' own tests run the kit on it. A sample of the kit runs, all of it
with `DOVETAIL_EXHAUSTIVE=1`.
"""

import re
import runpy
import warnings
from pathlib import Path

import pytest

from dovetail.testing import DeviceConformance

named_devices = runpy.run_path(str(Path(__file__).parent / "_devices.py"))["named_devices"]
PLUGINS = Path(__file__).resolve().parents[2] / "plugins"

for name in named_devices():
    title = f"Test{re.sub(r'[^A-Za-z0-9]', '_', name)}"
    members = {"device": name, "__module__": __name__, "pytestmark": [pytest.mark.exhaustive(0.15)]}
    globals()[title] = type(title, (DeviceConformance,), members)


def test_every_device_is_tested_by_its_package() -> None:
    packages = {path.parent for path in PLUGINS.glob("*/pyproject.toml") if '"dovetail.devices"' in path.read_text()}
    kit = re.compile(r'\(DeviceConformance\):\n    """.*"""\n\n    device = "[A-Z]+"\n')
    assert [p.name for p in packages if not kit.search((p / "tests" / "test_conformance.py").read_text())] == []
    assert len(packages) >= 3


def test_warnings_are_errors_here() -> None:
    with pytest.raises(UserWarning):
        warnings.warn("the suite must not run with warnings ignored", UserWarning, stacklevel=1)
