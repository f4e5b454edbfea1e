"""The conformance kit on virtual devices over the real ones; CI draws a sample, `DOVETAIL_EXHAUSTIVE=1` runs all."""

import pytest

from dovetail.testing import DeviceConformance

SHARE = 0.01

pytestmark = pytest.mark.exhaustive(SHARE)


class TestAuto(DeviceConformance):
    device = "AUTO"


class TestHetero(DeviceConformance):
    device = "HETERO:OPENCL,NUMPY"


class TestMulti(DeviceConformance):
    device = "MULTI:OPENCL.0,ONEDNN"


class TestBatch(DeviceConformance):
    device = "BATCH:ONEDNN(4)"
