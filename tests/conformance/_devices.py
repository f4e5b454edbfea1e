"""The devices that `DOVETAIL_TEST_DEVICES` names."""

import os

__all__ = ["named_devices"]


def named_devices() -> list[str]:
    """`OPENCL.1,ONEDNN` by commas, `AUTO HETERO:OPENCL,NUMPY` by spaces where a name has a colon; empty when none are named."""
    chosen = os.environ.get("DOVETAIL_TEST_DEVICES", "")
    return chosen.split() if ":" in chosen else chosen.replace(",", " ").split()
