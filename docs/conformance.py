"""Writes docs/reference/conformance.md: what the devices of this repository claim, as the conformance kit finds it here.

`python docs/conformance.py` runs every check of NUMPY, ONEDNN and the first OPENCL device. What the last two claim depends on CPU
and driver: a test compares NUMPY's tables word for word, and of the others only that every operator stands there and none failed.
"""

import sys
from pathlib import Path

from dovetail.testing import Report, run_checks
from dovetail.testing.devices import DeviceChecks

PAGE = Path(__file__).resolve().parent / "reference" / "conformance.md"
DEVICES = ("NUMPY", "ONEDNN", "OPENCL")

HEAD = """\
# Conformance

<!-- Written by docs/conformance.py from the results of the checks. Do not edit: run `python docs/conformance.py`. -->

What the devices of this repository claim, found by the [conformance kit](../how-to/test_your_plugin.md): every case of every
standard operator runs on the device alone. `dovetail plugins test DEVICE` prints the same for any device on your machine.

Besides, ONNX's own backend cases (1,884 of nodes, 82 and 35 converted models, 23 simple ones, 9 light ones) run through file,
planning and device by `pytest tests/conformance -k backend`, which prints how many pass, how many of them by
[dovetail-ops-onnx-reference](../../contrib/onnx_reference/README.md), and how many a device refuses. On NUMPY at least 1,850 node
cases must pass, 1,800 of them by dovetail's own operators; what is excluded stands in `tests/conformance/onnx_excluded.txt` with
a reason, and fails the test when it passes after all.

| In a cell | Means |
| --- | --- |
| yes | every case with that type of first input is accepted, and right |
| 3 of 5 | three cases are right, the others are refused with a reason; `dovetail info MODEL` tells the reason for your model |
| no | every case is refused with a reason; such nodes run on NUMPY unless FALLBACK is off |
| planned | right, and known while planning: the device computes nothing |
| | no case has that type |
"""


def main() -> int:
    """Run the checks and write the page; 1 when a check failed."""
    reports = [report_of(device) for device in DEVICES]
    PAGE.write_text(render(reports), encoding="utf-8")
    for report in reports:
        for result in report.failures:
            print(f"FAILED {report.subject} {result.name}: {result.detail}", file=sys.stderr)
    return int(any(report.failures for report in reports))


def report_of(device: str) -> Report:
    """The report of the first device of a type; its subject is the type and what the device says of itself."""
    kit = DeviceChecks(device)
    full_name = kit.core.plugins.device_info(device).full_name
    report = run_checks(device if device == DEVICES[0] else f"{device}, here {full_name}", kit.checks)
    kit.close()
    return report


def render(reports: list[Report]) -> str:
    """The whole page."""
    return "\n".join([HEAD, *(f"## {report.subject}\n\n{report.markdown()}" for report in reports)])


if __name__ == "__main__":
    sys.exit(main())
