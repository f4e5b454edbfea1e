"""Shared by all tests of this repository: tiers, samples, seconds by package, and fixtures for the command line.

`pytest -m quick` runs the folders of `QUICK`, in under a minute on two cores. Of tests marked `exhaustive(share)` a share runs by
default, drawn with `DOVETAIL_SEED` (0 unless set); `DOVETAIL_EXHAUSTIVE=1` runs all of them.
"""

import json
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from dovetail.cli import program

ROOT = Path(__file__).parent
SEED = int(os.environ.get("DOVETAIL_SEED", "0"))
EXHAUSTIVE = os.environ.get("DOVETAIL_EXHAUSTIVE") == "1"

QUICK = (
    "core/tests",
    "plugins/ops_onnx/tests",
    "plugins/cpu_numpy/tests",
    "plugins/frontend_onnx/tests",
    "plugins/frontend_pzkm/tests",
    "contrib/onnx_reference/tests",
    "tests/architecture",
)
"""Folders of the tier `quick`: no kernel is compiled, nothing is installed, no other runtime is started."""
SLOW = (
    "core/tests/cli",
    "core/tests/testing",
    "core/tests/plugins/test_doctor.py",
    "core/tests/runtime/test_endurance.py",
    "plugins/ops_onnx/tests/test_onnx_cases.py",
    "plugins/frontend_onnx/tests/test_onnx_models.py",
    "plugins/frontend_pzkm/tests/test_malformed.py",
    "plugins/frontend_pzkm/tests/test_mutations.py",
)
"""Left out of them: tests that start processes, run every device, or take more than a few seconds."""


def pytest_configure() -> None:
    """Compiled kernels are not kept: making binaries costs PoCL as much as compiling, and the user's cache stays as it is.

    Tests of the caches delete the variable. Drivers keep caches of their own all the same.
    """
    os.environ.setdefault("DOVETAIL_CACHE_LIMIT", "0")


def pytest_report_header() -> str:
    """The seed of the samples, with which a failure is repeated."""
    return f"DOVETAIL_SEED={SEED}" + (" DOVETAIL_EXHAUSTIVE=1" if EXHAUSTIVE else "")


# --- tiers -----------------------------------------------------------------------------------------------------------


def _is_quick(path: Path) -> bool:
    def is_in(listed: str) -> bool:
        return path.is_relative_to(ROOT / listed)

    return any(map(is_in, QUICK)) and not any(map(is_in, SLOW))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m quick` imports no file of other folders: that alone would take longer than its tests."""
    is_test = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if config.option.markexpr == "quick" and is_test and not _is_quick(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of the quick folders; `-m` looks at marks later."""
    if _is_quick(item.path):
        item.add_marker("quick")


# --- samples ---------------------------------------------------------------------------------------------------------


def _share(item: pytest.Item) -> float | None:
    """The least share that the marks of a test ask for; None for a test that always runs."""
    device = str(getattr(item, "callspec", None) and item.callspec.params.get("device", ""))
    shares = [m.args[0] for m in item.iter_markers("exhaustive") if device.startswith(m.kwargs.get("device") or "")]
    return min(shares, default=None)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the samples leave out. Comes after `-k` and `-m`: of tests that are asked for by name at least one runs."""
    families: dict[tuple[str, float], list[pytest.Item]] = defaultdict(list)
    for item in items:
        share = None if EXHAUSTIVE else _share(item)
        if share is not None:
            families[item.path.as_posix(), share].append(item)
    left_out: list[pytest.Item] = []
    for (path, share), family in families.items():
        kept = math.ceil(share * len(family))
        left_out += random.Random(f"{SEED} {Path(path).name}").sample(family, len(family) - kept)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


@pytest.fixture(scope="session")
def sampled() -> Callable[[Sequence[Any], int], Sequence[Any]]:
    """`sampled(cases, count)`: a sample of them in their order, drawn with DOVETAIL_SEED; all with DOVETAIL_EXHAUSTIVE=1."""

    def draw(cases: Sequence[Any], count: int) -> Sequence[Any]:
        if EXHAUSTIVE or len(cases) <= count:
            return cases
        return [cases[i] for i in sorted(random.Random(SEED).sample(range(len(cases)), count))]

    return draw


# --- seconds by package ----------------------------------------------------------------------------------------------


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """In CI, how long the tests of each package and each folder of tests/ took, summed over the workers."""
    if "DOVETAIL_CI" not in os.environ:
        return
    seconds: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                first, second, *_ = (*report.nodeid.split("::")[0].split("/"), "")
                seconds[first if first == "core" else f"{first}/{second}"] += report.duration
    terminalreporter.section("seconds by package")
    for package, total in seconds.most_common():
        terminalreporter.write_line(f"{total:8.1f} {package}")
    terminalreporter.write_line(f"{seconds.total():8.1f} in all")


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`invoke("devices", "--json")`: the program in this process, in an empty working folder; unhandled errors are raised."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, code: int = 0) -> Result:
        result = CliRunner().invoke(program, [str(a) for a in arguments], prog_name="dovetail", catch_exceptions=False)
        assert result.exit_code == code, f"exit code {result.exit_code}\n{result.output}"
        return result

    return run


@pytest.fixture
def invoke_json(invoke: Callable[..., Result]) -> Callable[..., Any]:
    """As `invoke`, with `--json`; returns what is on stdout, all of which must be one JSON document."""

    def run(*arguments: object, code: int = 0) -> Any:
        return json.loads(invoke(*arguments, "--json", code=code).stdout)

    return run
