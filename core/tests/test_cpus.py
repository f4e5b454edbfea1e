"""CPUs that a process may use: affinity, the quotas of control groups, and who asks for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dovetail.cpus as cpus_module
from dovetail.cpus import usable_cpus


@pytest.mark.parametrize(
    ("groups", "files", "cpus"),
    [
        ("0::/\n", {"cpu.max": "150000 100000"}, 2),
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/\n", {"cpu.max": "nonsense"}, 8),
        ("0::/\n", {"cpu.max": "5 0"}, 8),
        ("0::/slice/app\n", {"slice/cpu.max": "300000 100000", "slice/app/cpu.max": "max 100000"}, 3),
        ("0::/slice/app\n", {"slice/cpu.max": "300000 100000", "slice/app/cpu.max": "50000 100000"}, 1),
        ("4:cpu,cpuacct:/a\n", {"cpu,cpuacct/a/cpu.cfs_quota_us": "250000", "cpu,cpuacct/a/cpu.cfs_period_us": "100000"}, 3),
        ("4:cpu:/a\n", {"cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "50000"}, 2),
        ("4:cpu:/a\n", {"cpu/a/cpu.cfs_quota_us": "-1", "cpu/a/cpu.cfs_period_us": "50000"}, 8),
        ("3:memory:/a\n", {"memory/a/cpu.cfs_quota_us": "1", "memory/a/cpu.cfs_period_us": "1"}, 8),
        ("rubbish\n\n", {}, 8),
        (None, {}, 8),
    ],
)
def test_quotas_of_control_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, groups: str | None, files: dict[str, str], cpus: int
) -> None:
    """Version 2, its groups above the process's own, version 1, and files that are not there."""
    if groups is not None:
        (tmp_path / "groups").write_text(groups)
    for name, text in files.items():
        path = tmp_path / "fs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    monkeypatch.setattr(cpus_module, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cpus_module, "_ROOT", tmp_path / "fs")
    monkeypatch.setattr(os, "process_cpu_count", lambda: 8, raising=False)
    assert usable_cpus() == cpus


@pytest.mark.parametrize(("cpus", "expected"), [(3, 3), (None, 1)])
def test_without_affinity(monkeypatch: pytest.MonkeyPatch, cpus: int | None, expected: int) -> None:
    """As on macOS and Windows before Python 3.13."""
    monkeypatch.setattr(cpus_module, "_quotas", lambda: sys.maxsize)
    monkeypatch.delattr(os, "process_cpu_count", raising=False)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cpus)
    assert usable_cpus() == expected


AFFINITY = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from dovetail.cpus import usable_cpus
print(usable_cpus())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux lets a process choose its CPUs so")
def test_affinity() -> None:
    environment = {"PYTHONPATH": ":".join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", AFFINITY], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "1\n"
