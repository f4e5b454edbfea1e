"""How many CPUs this process may use, by its affinity and by the quotas of its control groups."""

import math
import os
import sys
from pathlib import Path, PurePosixPath

__all__ = ["usable_cpus"]

_GROUPS = Path("/proc/self/cgroup")
_ROOT = Path("/sys/fs/cgroup")


def usable_cpus() -> int:
    """The CPUs that this process may use now, at least 1: by its affinity (`taskset`, cpusets) or, from Python 3.13 on,
    `PYTHON_CPU_COUNT`; and not more than its control groups allow (`docker run --cpus`, limits of Kubernetes).
    """
    if hasattr(os, "process_cpu_count"):  # Python 3.13
        cpus = os.process_cpu_count()
    else:
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, min(cpus or 1, _quotas()))


def _quotas() -> int:
    """The least quota of this process's control groups, version 1 or 2, rounded up; `sys.maxsize` without quotas.

    A group obeys those above it too. In a container its own group is the root.
    """
    limits = [_quota(_ROOT / "cpu.max")]
    for line in _words(_GROUPS):
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and "cpu" not in controllers.split(","):
            continue
        group = PurePosixPath(path.lstrip("/"))
        for folder in (group, *group.parents):
            found = [_ROOT / folder] if not controllers else [_ROOT / "cpu" / folder, _ROOT / controllers / folder]
            limits += [_quota(f / "cpu.max") if not controllers else _old_quota(f) for f in found]
    return min(limits)


def _quota(path: Path) -> int:
    """Version 2: quota and period in one file."""
    words = _words(path)
    return _cpus(*words[:2]) if len(words) > 1 else sys.maxsize


def _old_quota(folder: Path) -> int:
    """Version 1: a file for each."""
    words = [*_words(folder / "cpu.cfs_quota_us")[:1], *_words(folder / "cpu.cfs_period_us")[:1]]
    return _cpus(*words) if len(words) == 2 else sys.maxsize


def _cpus(quota: str, period: str) -> int:
    if quota.isdigit() and period.isdigit() and int(quota) and int(period):
        return math.ceil(int(quota) / int(period))
    return sys.maxsize


def _words(path: Path) -> list[str]:
    """The words of a file, nothing where there is none to read."""
    try:
        return path.read_text().split()
    except (OSError, ValueError):
        return []
