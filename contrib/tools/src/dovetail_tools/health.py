"""Examines one plugin in this process, which it may hang or kill; `dovetail plugins doctor` runs it in one of its own.

Findings are written line by line as JSON, so that those of a process that was stopped are known too.
"""

import contextlib
import importlib
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from dovetail.command import printable
from dovetail.errors import DovetailError, UsageError
from dovetail.plugins import PACKS, PluginManager, PluginRecord
from dovetail.runtime import REFERENCE_DEVICE, Core
from dovetail.testing.case import Case, passed
from dovetail.testing.check import Check, ConformanceFailure, Outcome, Result, Verdict, require
from dovetail.testing.devices import DeviceChecks
from dovetail.testing.kit import Kit
from dovetail.testing.packs import OpPackChecks, cases_of, definition_checks, label, probe, reference_checks
from dovetail_tools.kits import kit_for, session_for
from dovetail_tools.report import Report, run_checks

__all__ = ["BEGIN_IMPORT", "END_IMPORT", "examine", "main"]

BEGIN_IMPORT = "dovetail: begin import"
END_IMPORT = "dovetail: end import"
"""Lines on stderr around the import of the plugin, between which `python -X importtime` writes what it cost."""

SHOWN = 5
"""Failures of one stage that are reported in full."""

Emit = Callable[[Mapping[str, Any]], None]


def main(arguments: str) -> None:
    """Examine the plugin `id`, writing lines to the file `results`; `arguments` is a JSON object of these two."""
    given = json.loads(arguments)
    with open(given["results"], "a", encoding="utf-8") as file:

        def emit(line: Mapping[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        examine(given["id"], emit)


def examine(plugin: str, emit: Emit) -> None:
    """Examine the plugin with this id.

    Lines are `{"stage"}` before each stage, `{"facts"}`, `{"level", "reason", "hint"}` for what is wrong, `{"done"}` at the end.
    """
    manager = PluginManager(plugins=plugin, prefer=(plugin,))
    record = manager.record(plugin)
    emit({"stage": f"importing {record.value}"})
    seconds, printed = _timed_import(record)
    emit({"facts": {"import_seconds": seconds}})
    if printed:
        reason = f"it prints while it is imported: {printable(printed)}"
        emit(_finding("WARN", reason, "authors: log it with the module logging, or leave it out"))
    emit({"stage": "registering its hooks" + (" and probing its devices" if record.kind == "devices" else "")})
    record = manager.load(plugin)
    emit({"facts": {"state": record.state, "provides": record.provides}})
    if record.state == "unavailable":
        emit(_finding("WARN", f"installed, but unavailable here: {record.reason}", record.hint))
    elif record.state != "loaded":
        emit({**_finding("FAIL", record.reason, record.hint), "traceback": record.traceback})
    else:
        _examine_loaded(record, emit)
    emit({"done": True})


def _examine_loaded(record: PluginRecord, emit: Emit) -> None:
    try:
        _EXAMINE.get(record.kind, _EXAMINE["hooks"])(record, emit)
    except Exception as error:
        if isinstance(error, UsageError) and find_spec("ml_dtypes") is None:  # the cases have types that NumPy lacks
            emit(_finding("WARN", f"not checked: {error.message}", error.hint))
            return
        reason = f"{type(error).__name__}: {error}"
        emit({**_finding("FAIL", reason, _retest(record)), "traceback": "".join(traceback.format_exception(error))})


def _finding(level: str, reason: str, hint: str = "") -> dict[str, str]:
    return {"level": level, "reason": reason, "hint": hint}


def _timed_import(record: PluginRecord) -> tuple[float, str]:
    """Seconds that importing the plugin's module takes, and what it prints on stdout.

    A failure is left to the manager, which explains it better.
    """
    _mark(BEGIN_IMPORT)
    printed = io.StringIO()
    start = time.perf_counter()
    with contextlib.redirect_stdout(printed), contextlib.suppress(Exception, SystemExit):
        importlib.import_module(record.value.partition(":")[0])
    seconds = time.perf_counter() - start
    _mark(END_IMPORT)
    return seconds, printed.getvalue().strip()


def _mark(line: str) -> None:
    sys.stderr.flush()
    os.write(2, f"{line}\n".encode())


def _session(record: PluginRecord) -> Core:
    return session_for(record, plugins=record.id)


# --- devices -------------------------------------------------------------------------------------------------------------


def _examine_device(record: PluginRecord, emit: Emit) -> None:
    for name in record.provides:
        kit = DeviceChecks(name, partial(_session, record))
        emit({"stage": f"opening {name}"})
        kit.open()
        emit({"stage": f"running an operator on {name}"})
        smoke = _first_claimed(kit)
        if smoke is None:
            emit(_finding("WARN", f"{name} claims none of the standard operators", "let supports() accept what the device runs"))
        elif smoke.outcome is Outcome.FAILED:
            emit(_finding("FAIL", f"{name} fails at {smoke.name}: {smoke.detail}", _retest(record)))
        kit.close()
    kit = DeviceChecks(record.provides[0], partial(_session, record))
    _run(record, emit, f"checking what {record.provides[0]} claims", _one_for_each_operator(kit))
    kit.close()


def _first_claimed(kit: DeviceChecks) -> Result | None:
    """The result of the first operator that the device does not refuse; `Add` and `Relu` are asked first."""
    checks = list(_one_for_each_operator(kit))
    for check in sorted(checks, key=lambda check: check.operator not in ("Add", "Relu")):
        result = check.result()
        if result.outcome in (Outcome.PASSED, Outcome.FAILED):
            return result
    return None


def _one_for_each_operator(kit: Kit) -> Iterator[Check]:
    seen = set()
    for check in kit.checks:
        if check.group == "operators" and check.operator not in seen:
            seen.add(check.operator)
            yield check


# --- op packs ------------------------------------------------------------------------------------------------------------


def _examine_pack(record: PluginRecord, emit: Emit) -> None:
    kit = kit_for(record, partial(_session, record))
    assert isinstance(kit, OpPackChecks)
    cases = {cls: cases_of(cls) for cls in kit.operators}
    without = [cls for cls in kit.operators if not cases[cls]]
    reported_together = {f"{label(cls)}-cases" for cls in without}
    definitions = [check for cls in kit.operators for check in definition_checks(cls, cases[cls])]
    definitions += [check for check in kit.checks if check.name == "manifest"]
    _run(record, emit, "looking at its operators", [c for c in definitions if c.name not in reported_together], level="WARN")
    if without:
        emit(_finding("WARN", _without_cases(without, len(kit.operators)), "authors: let the classmethod cases(rng) yield some"))
    claims = [check for cls in kit.operators for check in reference_checks(cls, cases[cls])]
    claims += [Check("cases", f"{label(cls)}-made-up", partial(_probed, cls), cls.key) for cls in without]
    _run(record, emit, "comparing references with inference and cases", claims)
    smoke = [Check("devices", cls.key, partial(_smoke, kit.core, cases[cls][0])) for cls in kit.operators if cases[cls]]
    _run(record, emit, f"running each operator on {REFERENCE_DEVICE}", smoke)
    kit.close()


def _without_cases(without: Sequence[Any], count: int) -> str:
    names = ", ".join(dict.fromkeys(cls.key for cls in without[:SHOWN])) + (", ..." if len(without) > SHOWN else "")
    return f"{len(without)} of {count} operators have no cases ({names}): references were compared with inference only"


def _probed(cls: Any) -> Verdict:
    return Verdict(Outcome.PASSED if probe(cls) else Outcome.REFUSED, "no made-up inputs fit it")


def _smoke(core: Core, case: Case) -> Verdict:
    with core.compile_model(case.model(), REFERENCE_DEVICE) as compiled:
        results = compiled(case.feeds())
        wrong = passed(case, [results[i] for i in range(len(case.expected))])
        require(not wrong, wrong)
    return Verdict(Outcome.PASSED)


def _examine_virtual(record: PluginRecord, emit: Emit) -> None:
    emit({"stage": "making the virtual device"})
    core = _session(record)
    core.plugins.virtual_device(record.key)
    core.close()


# --- the others ----------------------------------------------------------------------------------------------------------


def _examine_kit(stage: str, record: PluginRecord, emit: Emit) -> None:
    kit = kit_for(record, partial(_session, record))
    _run(record, emit, stage, kit.checks)
    kit.close()


_EXAMINE: dict[str, Callable[[PluginRecord, Emit], None]] = {
    "devices": _examine_device,
    "virtual_devices": _examine_virtual,
    **dict.fromkeys(PACKS, _examine_pack),
    "frontends": partial(_examine_kit, "giving it malformed input"),
    "commands": partial(_examine_kit, "asking for its commands"),
    "hooks": partial(_examine_kit, "running graphs with its passes, and asking for its commands"),
}


def _run(record: PluginRecord, emit: Emit, stage: str, checks: Iterable[Check], level: str = "FAIL") -> None:
    """Run checks as one stage; failures are reported, the first few in full."""
    emit({"stage": stage})
    try:
        report = run_checks(record.id, checks)
    except (DovetailError, ConformanceFailure) as error:
        emit(_finding("FAIL", str(error)))
        return
    emit({"facts": {stage: report.counts()}})
    for text in _failure_texts(report):
        emit(_finding(level, text, _retest(record)))


def _failure_texts(report: Report) -> Iterator[str]:
    for result in report.failures[:SHOWN]:
        yield f"{result.operator or result.name} ({result.name}): {result.detail}"
    if len(report.failures) > SHOWN:
        yield f"and {len(report.failures) - SHOWN} more"


def _retest(record: PluginRecord) -> str:
    return f"all checks: dovetail plugins test {record.key}; report what fails to the authors of {record.distribution}"
