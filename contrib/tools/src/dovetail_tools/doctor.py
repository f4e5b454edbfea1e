"""`dovetail plugins doctor`: every plugin in a separate process, which it may hang or kill without harm."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    FiniteRange,
    command,
    complete_plugins,
    duration,
    print_json,
    print_table,
    print_text,
    remark,
    styled,
)

if TYPE_CHECKING:
    from dovetail.plugins import PluginRecord

__all__ = ["doctor"]

HEAVY_SECONDS = 0.05
"""A module that takes longer to import, with all that it imports, is listed."""

SLOW_SECONDS = 0.25
"""A plugin whose module takes longer to import gets a warning."""

_LEVELS = ("OK", "WARN", "FAIL")
_STATIC = {"blocked": "WARN", "incompatible": "FAIL", "failed": "FAIL"}
_IMPORT = re.compile(r"import time:\s+\d+ \|\s+(\d+) \|\s+(\S+)")
_CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from dovetail_tools.health import main; main(sys.argv[2])"


@dataclass
class Diagnosis:
    """The doctor's findings on one plugin. `facts` are times, devices and counts of checks."""

    id: str
    distribution: str
    version: str
    facts: dict[str, Any] = field(default_factory=dict)
    findings: list[dict[str, str]] = field(default_factory=list)
    stage: str = ""
    traceback: str = ""

    @property
    def verdict(self) -> str:
        """`OK`, `WARN` or `FAIL`: the worst of the findings."""
        return max((finding["level"] for finding in self.findings), key=_LEVELS.index, default="OK")

    def find(self, level: str, reason: str, hint: str = "") -> None:
        """Add a finding."""
        self.findings.append({"level": level, "reason": reason, "hint": hint})


@command("dovetail plugins doctor", name="doctor")
@click.argument("name", required=False, shell_complete=complete_plugins)
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    metavar="S",
    help="Seconds that one plugin may take.",
)
def doctor(name: str | None, timeout: float, as_json: bool) -> None:
    """Examine all plugins, or one, each in a separate process.

    A plugin that hangs or crashes does no harm. The doctor checks metadata and version, import time, hooks, devices, one
    operator on each device, and a case of each operator that the plugin claims. NAME is a distribution, an entry name or an
    id from `dovetail plugins list`. The verdict is OK, WARN (works, but look at it) or FAIL; the exit code is 1 when one is
    FAIL.

    \b
    JSON: {"plugins": [{"id", "distribution", "version", "verdict",
           "stage", "findings": [{"level", "reason", "hint"}],
           "facts": {...}, "traceback"}]}
    """
    from dovetail.plugins import PluginManager

    manager = PluginManager()
    records = [record for record in manager.records() if name is None or record.answers_to(name)]
    if name is not None and not records:
        manager.record(name)  # raises, with a suggestion
    found = []
    for record in records:
        remark(f"examining {record.id}")
        found.append(diagnose(record, timeout))
    if as_json:
        print_json({"plugins": [{**asdict(d), "verdict": d.verdict} for d in found]})
    else:
        _print(found)
    if any(d.verdict == "FAIL" for d in found):
        click.get_current_context().exit(1)


def diagnose(record: "PluginRecord", timeout: float) -> Diagnosis:
    """Examine one plugin; `timeout` in seconds."""
    found = Diagnosis(record.id, record.distribution, record.version)
    for copy in record.duplicates:
        found.find(
            "WARN", f"another copy is installed and not used: {copy}", f"pip uninstall {record.distribution}, until none is left"
        )
    if record.state in _STATIC:
        found.find(_STATIC[record.state], f"not examined: {record.reason}", record.hint)
        return found
    found.stage = "starting the process"
    with tempfile.TemporaryDirectory() as folder:
        results, errors = Path(folder, "results"), Path(folder, "errors")
        results.touch()
        code = _run(record, results, errors, timeout)
        output = errors.read_text(encoding="utf-8", errors="replace")
        for line in results.read_text(encoding="utf-8").splitlines():
            _take(found, json.loads(line))
    _take_imports(found, output)
    _take_end(found, code, output, timeout)
    return found


def _run(record: "PluginRecord", results: Path, errors: Path, timeout: float) -> int | None:
    """The exit code of the process that examines the plugin; None when it had to be stopped."""
    arguments = json.dumps({"id": record.id, "results": str(results)})
    command = [sys.executable, "-P", "-X", "importtime", "-X", "faulthandler", "-c", _CHILD, json.dumps(sys.path), arguments]
    with errors.open("wb") as stream:
        # A session of its own, so that whatever the plugin starts is stopped with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stream, start_new_session=True
        )
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _stop(process)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """Kill the process, if it still runs, with all that it started."""
    if process.poll() is None:
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
        process.wait()


def _take(found: Diagnosis, line: Mapping[str, Any]) -> None:
    found.stage = line.get("stage", "" if "done" in line else found.stage)
    found.facts.update(line.get("facts", {}))
    found.traceback = line.get("traceback", found.traceback)
    if "level" in line:
        found.find(line["level"], line["reason"], line["hint"])


def _take_imports(found: Diagnosis, output: str) -> None:
    """The modules that are slow to import, and a warning if the whole is."""
    from dovetail_tools.health import BEGIN_IMPORT, END_IMPORT

    during = output.partition(f"{BEGIN_IMPORT}\n")[2].partition(f"{END_IMPORT}\n")[0]
    times = {name: int(microseconds) / 1e6 for microseconds, name in _IMPORT.findall(during)}
    heavy = sorted(((s, name) for name, s in times.items() if s > HEAVY_SECONDS), reverse=True)
    found.facts["heavy_imports"] = {name: seconds for seconds, name in heavy}
    seconds = found.facts.get("import_seconds", 0.0)
    if seconds > SLOW_SECONDS:
        slowest = ", ".join(f"{name} {duration(s)}" for s, name in heavy[:5]) or "no module in particular"
        hint = "authors: import what is slow inside the hook that needs it"
        found.find("WARN", f"importing it takes {duration(seconds)}: {slowest}", hint)


def _take_end(found: Diagnosis, code: int | None, output: str, timeout: float) -> None:
    """A finding for a process that did not come to its end."""
    if not found.stage:
        return
    hint = f"dovetail works without it: DOVETAIL_PLUGINS=-{found.distribution}; report this to its authors"
    if code is None:
        found.find(
            "FAIL", f"it hangs: no end after {timeout:g} s while {found.stage}", f"{hint}, or give it more time with --timeout"
        )
    elif code < 0:
        found.find("FAIL", f"it crashes: {_signal(-code)} while {found.stage}", hint)
    else:
        found.find("FAIL", f"it ends the process with exit code {code} while {found.stage}", hint)
    found.traceback = found.traceback or "".join(_crash(output))


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _crash(output: str) -> Iterator[str]:
    """The last lines that the process wrote on stderr, without the times of imports."""
    lines = [line for line in output.splitlines(keepends=True) if not line.startswith(("import time:", "dovetail: "))]
    yield from lines[-40:]


def _print(found: list[Diagnosis]) -> None:
    rows = [(d.id, d.version, _import_time(d), _heavy(d), _checked(d), styled(d.verdict)) for d in found]
    columns = ("plugin", "version", ">import", "slow imports", "checks", "verdict")
    print_table("Plugins", columns, rows, empty="none installed")
    for d in found:
        for finding in d.findings:
            print_text(f"{finding['level']} {d.id}: {finding['reason']}")
        for hint in dict.fromkeys(finding["hint"] for finding in d.findings if finding["hint"]):
            print_text(f"  {hint}")
        if d.traceback:
            print_text(d.traceback)


def _import_time(d: Diagnosis) -> str:
    return duration(d.facts["import_seconds"]) if "import_seconds" in d.facts else ""


def _heavy(d: Diagnosis) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in d.facts.get("heavy_imports", {}).items())


def _checked(d: Diagnosis) -> str:
    """`31 passed, 4 refused`, over all stages."""
    totals: dict[str, int] = {}
    for fact, counts in d.facts.items():
        if isinstance(counts, dict) and fact != "heavy_imports":
            for outcome, number in counts.items():
                totals[outcome] = totals.get(outcome, 0) + number
    return ", ".join(f"{number} {outcome}" for outcome, number in totals.items())
