"""`dovetail plugins test`: the conformance kit for an installed plugin, without pytest."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from dovetail.command import (
    command,
    complete_plugins,
    print_json,
    print_table,
    print_text,
    progress,
    remark,
    without_warnings,
)

if TYPE_CHECKING:
    from dovetail.testing.kit import Kit
    from dovetail_tools.report import Report

__all__ = ["test"]


@command("dovetail plugins test NAME", name="test")
@click.argument("name", shell_complete=complete_plugins)
def test(name: str, as_json: bool) -> None:
    """Check one plugin against everything it claims.

    NAME is a distribution, an entry name (device type, file suffix, operator domain) or an id from `dovetail plugins list`;
    or a device, such as OPENCL.1 or MIRROR:OPENCL.0,OPENCL.1. Of a device plugin the first device is checked; an op pack is
    checked on every device that is there. In the table, "3 of 5" means that three cases pass and two are refused with a
    reason. The exit code is 1 when a check fails. Known gaps, which a package may list in its own tests, count as failures
    here.

    \b
    JSON: {"plugins": [{"subject", "ok", "counts": {outcome: number},
           "table": {operator: {data type: {outcome: number}}},
           "results": [{"group", "name", "outcome", "detail",
                        "operator", "dtype"}]}]}
    """
    # A thousand kernels that no model uses: their binaries would take some drivers as long as building them, and push others out.
    os.environ.setdefault("DOVETAIL_CACHE_LIMIT", "0")
    reports = [_report(subject, kit) for subject, kit in _kits(name)]
    if as_json:
        print_json({"plugins": [report.as_dict() for report in reports]})
    else:
        for report in reports:
            _print(report)
    if not all(report.ok for report in reports):
        click.get_current_context().exit(1)


def _report(subject: str, kit: "Kit") -> "Report":
    from dovetail_tools.report import run_checks

    kit.open()  # what cannot be loaded or opened is one error, not one for each check
    # Nodes that fall back to the reference device are what is being tested here, not something to warn of.
    with without_warnings(), progress(subject, len(kit.checks)) as advance:
        report = run_checks(subject, kit.checks, lambda result: advance(1))
    kit.close()
    return report


def _kits(name: str) -> "Iterator[tuple[str, Kit]]":
    """The checks, with the id of the plugin or the name of the device that they are about."""
    from dovetail.plugins import PluginManager
    from dovetail.testing.devices import DeviceChecks
    from dovetail_tools.kits import kit_for

    manager = PluginManager()
    kind, dot, number = name.upper().partition(".")
    types = [record.key.upper() for record in manager.records() if record.kind == "devices"]
    if ":" in name:
        yield name, DeviceChecks(name)
        return
    if dot and number.isdecimal() and kind in types:
        device = manager.device_info(name).name
        yield device, DeviceChecks(device)
        return
    for record in [r for r in manager.records() if r.answers_to(name)] or [manager.record(name)]:
        yield record.id, kit_for(record)


def _print(report: "Report") -> None:
    if report.table:
        print_table(report.subject, ("operator", *report.short_dtypes), list(report.rows()))
    if trips := report.round_trips:
        print_table(f"Data types of {report.subject}", ("type", "comes back"), list(trips.items()))
    outcomes = report.counts()
    rows = [(group.replace("_", " "), *(report.counts(group).get(o, 0) for o in outcomes)) for group in report.groups]
    print_table(f"Checks of {report.subject}", ("checks", *(f">{outcome}" for outcome in outcomes)), rows)
    for result in report.failures:
        print_text(f"FAILED {result.name}: {result.detail}")
    if report.ok:
        remark(f"{report.subject}: what it claims is right")
