"""Every device that is installed, against everything it claims. `DOVETAIL_TEST_DEVICES=OPENCL.0` keeps a run to one."""

import os

import dovetail
from dovetail.testing import DeviceConformance


def chosen() -> list[str]:
    with dovetail.Core() as core:
        return os.environ.get("DOVETAIL_TEST_DEVICES", ",".join(core.available_devices)).split(",")


for name in chosen():
    case = f"Test{name.replace('.', '')}"
    globals()[case] = type(case, (DeviceConformance,), {"device": name, "__module__": __name__})
