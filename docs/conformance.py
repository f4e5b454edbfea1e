"""Writes docs/reference/conformance.md: what devices claim, as the conformance kit finds it on the machines that have them.

`python docs/conformance.py` writes the page from the files in docs/reference/conformance, one for each device. Before it, files
are written again for the devices that are named: `python docs/conformance.py numpy=NUMPY onednn=ONEDNN pocl-debian=OPENCL.0
pocl-pip=OPENCL.1`. On another machine `python docs/conformance.py h200=OPENCL --to FOLDER` writes the file alone, to be copied
here. Exit code 1 when a check fails.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dovetail.testing.check import Check, Outcome, Result
from dovetail.testing.devices import DeviceChecks
from dovetail_tools.report import Report, cell, run_checks

PAGE = Path(__file__).resolve().parent / "reference" / "conformance.md"
FOLDER = PAGE.with_suffix("")
ORDER = ("numpy", "onednn", "pocl-debian", "pocl-pip", "h200")
"""The sections of the page; files of other names follow by name."""

HEAD = """\
# Conformance

<!-- Written by docs/conformance.py from docs/reference/conformance/*.json. Do not edit: run `python docs/conformance.py`. -->

What the devices of this repository claim, found by the [conformance kit](../how-to/test_your_plugin.md): every case of every
standard operator runs on the device alone. `dovetail plugins test DEVICE` prints the same for any device on your machine. What
ONEDNN and OPENCL claim depends on CPU and driver, so each section names them. The tables list the operators and data types of
which a case is refused: of all other [operators](operators.md) every case is right, or known while planning.

Besides, ONNX's own backend cases (1,884 of nodes, 82 and 35 converted models, 23 simple ones, 9 light ones) run through file,
planning and device by `pytest tests/conformance -k backend`, which prints how many pass, how many of them by
[dovetail-ops-onnx-reference](../../contrib/onnx_reference/README.md), and how many a device refuses. On NUMPY at least 1,850 node
cases must pass, 1,800 of them by dovetail's own operators; what is excluded is in `tests/conformance/onnx_excluded.txt` with
a reason, and fails the test when it passes after all. `pytest tests/conformance/test_light_models.py` gives the 9 light models
random weights and compares every device with onnxruntime, and the same models as OpenVINO IR with openvino, to 1e-4.

| In a cell | Means |
| --- | --- |
| yes | every case (with that type of first input) is accepted, and right |
| 3 of 5 | three cases are right, the others are refused with a reason; `dovetail info MODEL` shows the reason for your model |
| no | every case is refused with a reason; such nodes run on NUMPY unless FALLBACK is off |
| planned | right, and known while planning: the device computes nothing |
| | no case has that type, or the operator is newer than the results |
"""

Stored = dict[str, Any]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is requested; 1 when a check failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "devices", nargs="*", metavar="NAME=DEVICE", help="run the checks of DEVICE, and keep the results as NAME"
    )
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="write the files of results there, and no page")
    given = parser.parse_args(arguments)
    if not all("=" in pair for pair in given.devices) or (given.to and not given.devices):
        parser.error("write NAME=DEVICE for each device: h200=OPENCL")
    folder = given.to or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    failures = []
    for name, _, device in (pair.partition("=") for pair in given.devices):
        found, report = results_of(device)
        (folder / f"{name}.json").write_text(written(found), encoding="utf-8")
        failures += [f"FAILED {device} {result.name}: {result.detail}" for result in report.failures]
    if given.to is None:
        PAGE.write_text(page(), encoding="utf-8")
    print("\n".join(failures), file=sys.stderr, end="\n" if failures else "")
    return int(bool(failures))


# --- results of one device ----------------------------------------------------------------------------------------------------


def results_of(device: str, chosen: Callable[[Check], bool] = lambda check: True) -> tuple[Stored, Report]:
    """Run the chosen checks of a device: what is stored of it, and the report."""
    kit = DeviceChecks(device)
    info = kit.core.plugins.device_info(device)
    report = run_checks(info.type, [check for check in kit.checks if chosen(check)])
    kit.close()
    details = {key: str(info.details[key]) for key in ("platform", "driver") if key in info.details}
    return {"device": info.type, "hardware": info.full_name, **details, "results": counted(report)}, report


def counted(report: Report) -> Mapping[str, Any]:
    """Group of checks -> operator -> data type -> outcome -> how many checks; the last two names may be empty."""
    found: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    rows = Counter((r.group, r.operator, r.dtype, r.outcome.value) for r in report.results)
    for (group, operator, dtype, outcome), number in rows.items():
        found.setdefault(group, {}).setdefault(operator, {}).setdefault(dtype, {})[outcome] = number
    return found


def written(found: Stored) -> str:
    """As JSON with one line for each operator, so that differences can be read."""
    groups = [
        f"  {json.dumps(group)}: {{\n"
        + ",\n".join(f"   {json.dumps(name)}: {json.dumps(cells, sort_keys=True)}" for name, cells in sorted(operators.items()))
        + "\n  }"
        for group, operators in found["results"].items()
    ]
    head = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items() if key != "results"]
    return "{\n" + ",\n".join([*head, ' "results": {\n' + ",\n".join(groups) + "\n }"]) + "\n}\n"


# --- the page -----------------------------------------------------------------------------------------------------------------


def stored() -> dict[str, Stored]:
    """Name -> results, in the order of the sections."""
    names = sorted(
        (path.stem for path in FOLDER.glob("*.json")), key=lambda name: (ORDER.index(name) if name in ORDER else 99, name)
    )
    return {name: json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8")) for name in names}


def page() -> str:
    """The whole page, from the files."""
    found = stored()
    reports = {name: report_of(results) for name, results in found.items()}
    sections = [f"## {title(name, found[name])}\n\n{report.markdown()}" for name, report in reports.items()]
    return "\n".join([HEAD, f"## Operators and devices\n\n{overview(reports)}", *sections])


def report_of(results: Stored) -> Report:
    """The report that the results come from, without names and details."""
    rows: list[Result] = []
    for group, operators in results["results"].items():
        for operator, dtypes in operators.items():
            for dtype, outcomes in dtypes.items():
                for outcome, number in outcomes.items():
                    rows += [Result(group, "", Outcome(outcome), operator=operator, dtype=dtype)] * number
    return Report(results["device"], tuple(rows))


def title(name: str, results: Stored) -> str:
    """`NUMPY`, or the device with what its claims depend on."""
    if name == ORDER[0]:
        return str(results["device"])
    parts = [results["hardware"]]
    if "driver" in results:
        parts.append(f"{product(results['platform'])} {results['driver']}")
    return f"{results['device']}, {name}: {', '.join(parts)}"


def product(platform: str) -> str:
    """`PoCL` of `OpenCL 3.0 PoCL 3.1+debian ...`."""
    words = platform.split()
    return words[2] if words[:1] == ["OpenCL"] and len(words) > 2 else platform


def overview(reports: Mapping[str, Report]) -> str:
    """Operators by devices, those of which a case is refused: a cell for all data types together."""
    operators = sorted({operator for report in reports.values() for operator in report.table})
    lines: list[Iterable[str]] = [("Operator", *reports), ["---"] * (len(reports) + 1)]
    for operator in operators:
        counts = (sum((Counter(c) for c in r.table.get(operator, {}).values()), Counter[str]()) for r in reports.values())
        cells = [cell(one) for one in counts]
        if not {*cells} <= {"", "yes", "planned"}:
            lines.append((operator.replace("|", "\\|"), *cells))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.exit(main())
