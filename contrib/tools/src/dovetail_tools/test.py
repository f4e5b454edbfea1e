"""`dovetail plugins test`: the conformance kit for an installed plugin, without pytest."""

import os
from collections.abc import Callable, Iterator
from functools import partial
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
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.testing.kit import Kit
    from dovetail_tools.report import Report

__all__ = ["test"]


@command("dovetail plugins test NAME", name="test")
@click.argument("name", shell_complete=complete_plugins)
@click.option(
    "--processes",
    type=click.IntRange(1),
    metavar="N",
    help="Run the checks in so many processes. By default one for each core, at most 8, for devices that build kernels.",
)
def test(name: str, processes: int | None, as_json: bool) -> None:
    """Check one plugin against everything it claims.

    NAME is a distribution, an entry name (device type, file suffix, operator domain) or an id from `dovetail plugins list`;
    or a device, such as OPENCL.1 or MIRROR:OPENCL.0,OPENCL.1. Of a device plugin the first device is checked, a virtual
    device over NUMPY or NUMPY,NUMPY, an op pack on every device that is there. In the table, "3 of 5" means that three
    cases pass and two are refused with a reason. The exit code is 1 when a check fails. Known gaps, which a package may
    list in its own tests, count as failures here.

    \b
    JSON: {"plugins": [{"subject", "ok", "counts": {outcome: number},
           "table": {operator: {data type: {outcome: number}}},
           "results": [{"group", "name", "outcome", "detail",
                        "operator", "dtype"}]}]}
    """
    # A thousand kernels that no model uses: their binaries would take some drivers as long as building them, and push others out.
    os.environ.setdefault("DOVETAIL_CACHE_LIMIT", "0")
    kits, reports = [*_kits(name)], []
    for subject, make_kit in kits:
        reports.append(_report(subject, make_kit, processes, is_alone=len(kits) == 1))
        if not as_json:
            _print(reports[-1])
    if as_json:
        print_json({"plugins": [report.as_dict() for report in reports]})
    if not all(report.ok for report in reports):
        click.get_current_context().exit(1)


def _report(subject: str, make_kit: "Callable[[], Kit]", processes: int | None, is_alone: bool) -> "Report":
    from dovetail.testing.check import Outcome, Result
    from dovetail_tools.in_processes import default_processes, run_in_processes
    from dovetail_tools.report import Report, run_checks

    kit = make_kit()
    try:
        kit.open()  # what cannot be loaded or opened is one error, not one for each check
    except DovetailError as error:
        if is_alone:
            raise
        return Report(subject, (Result("open", "open", Outcome.FAILED, str(error)),))
    count = processes or (default_processes() if _builds_kernels(kit) else 1)
    # Nodes that fall back to the reference device are what is being tested here, not something to warn of.
    with without_warnings(), progress(subject, len(kit.checks)) as advance:
        if count > 1:
            report = Report(subject, run_in_processes(make_kit, kit.checks, count, advance))
        else:
            report = run_checks(subject, kit.checks, lambda result: advance(1))
    kit.close()
    return report


def _builds_kernels(kit: "Kit") -> bool:
    from dovetail.testing.devices import DeviceChecks

    if not isinstance(kit, DeviceChecks) or ":" in kit.device:
        return False
    return kit.core.plugins.device_info(kit.device).builds_kernels


def _kits(name: str) -> "Iterator[tuple[str, Callable[[], Kit]]]":
    """Functions that make the checks, each with the id of the plugin or the name of the device that it is about."""
    from dovetail.plugins import PluginManager
    from dovetail.testing.devices import DeviceChecks
    from dovetail_tools.kits import kit_for

    manager = PluginManager()
    kind, dot, number = name.upper().partition(".")
    types = [record.key.upper() for record in manager.records() if record.kind == "devices"]
    if ":" in name:
        yield name, partial(DeviceChecks, name)
        return
    if dot and number.isdecimal() and kind in types:
        device = manager.device_info(name).name
        yield device, partial(DeviceChecks, device)
        return
    for record in [r for r in manager.records() if r.answers_to(name)] or [manager.record(name)]:
        yield record.id, partial(kit_for, record)


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
