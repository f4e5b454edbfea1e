"""Does a plugin fit this dovetail? Its distribution's requirement, before import; its `dovetail_api`, after.

`packaging` is imported only for requirements that are not a plain list of comparisons with release numbers: it costs 15 ms
of the 150 that `dovetail plugins list` has.
"""

import re
from collections.abc import Callable
from functools import cache
from operator import eq, ge, gt, le, lt, ne

from dovetail._version import __version__
from dovetail.plugins.records import HOST, PluginRecord

__all__ = ["API_VERSION", "api_mismatch", "host_version", "requirement_mismatch", "sort_key"]

API_VERSION = "1.0"
"""The version of the plugin contract: hooks, `dovetail.op`, `dovetail.device`, `dovetail.frontend`. The caret rule holds."""

_ONLY_WITH_EXTRA = r".*;\s*extra\s*==\s*(['\"])[\w.-]+\1\s*"
_PLAIN_REQUIREMENT = re.compile(rf"{HOST}\s*\(?([\d\s.,<>=!]+)\)?", re.IGNORECASE)
_PLAIN_CLAUSE = re.compile(r"(>=|<=|==|!=|>|<)\s*(\d+(?:\.\d+)*)")
_COMPARE: dict[str, Callable[..., bool]] = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}
_API = re.compile(r"(\d+)\.(\d+)")


def host_version() -> str:
    """The version of the dovetail that is running."""
    return __version__


def requirement_mismatch(record: PluginRecord, running: str) -> tuple[str, str] | None:
    """Reason and hint when the plugin's distribution does not accept the dovetail version `running`; None when it does."""
    for requirement in record.requires:
        try:
            accepted = _accepts(requirement, running)
        except ValueError as error:
            reason = f"the requirement {requirement!r} is malformed: {str(error).splitlines()[0]}"
            return reason, f"pip install --upgrade {record.distribution}"
        if not accepted:
            return f"{record.provider} needs {requirement}; this is {HOST} {running}", _fix(record, requirement, running)
    return None


def _plain_check(requirement: str, running: str) -> bool | None:
    """The answer for requirements such as `dovetail>=0.1,<0.2`; None when they are of another form.

    Nobody asked for an extra of a plugin, so what holds only with one is accepted.
    """
    match = _PLAIN_REQUIREMENT.fullmatch(requirement)
    if match is None and re.fullmatch(_ONLY_WITH_EXTRA, requirement):
        return True
    if match is None or not all(part.isdecimal() for part in running.split(".")):
        return None
    clauses = [_PLAIN_CLAUSE.fullmatch(clause.strip()) for clause in match[1].split(",")]
    if None in clauses:
        return None
    return all(_COMPARE[clause[1]](_release(running), _release(clause[2])) for clause in clauses if clause)


def _release(version: str) -> tuple[int, ...]:
    """`0.1.0` -> `(0, 1)`: trailing zeros do not count (PEP 440)."""
    numbers = [int(part) for part in version.split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


@cache
def _accepts(requirement: str, running: str) -> bool:
    """The answer by PEP 508. Raises `ValueError` for a requirement that is malformed."""
    if (plain := _plain_check(requirement, running)) is not None:
        return plain
    from packaging.requirements import Requirement

    parsed = Requirement(requirement)
    if parsed.marker is not None and not parsed.marker.evaluate({"extra": ""}):
        return True
    return parsed.specifier.contains(running, prereleases=True)


def _fix(record: PluginRecord, requirement: str, running: str) -> str:
    """The pip line: a newer dovetail when the plugin asks for one, else a newer plugin."""
    from packaging.requirements import Requirement
    from packaging.version import Version

    specifier = Requirement(requirement).specifier
    bounds = [s.version.removesuffix(".*") for s in specifier if s.operator in (">=", ">", "==", "~=")]
    if any(Version(bound) > Version(running) for bound in bounds):
        return f"pip install --upgrade '{HOST}{specifier}'"
    return f"pip install --upgrade {record.distribution}"


def api_mismatch(declared: object, record: PluginRecord) -> tuple[str, str] | None:
    """Reason and hint when a module's `dovetail_api` does not fit `API_VERSION`; None when it does.

    The caret rule: the same first number, and a second number no greater than ours; below 1.0 both numbers the same.
    """
    match = _API.fullmatch(declared) if isinstance(declared, str) else None
    if match is None:
        said = "does not state dovetail_api" if declared is None else f"states dovetail_api = {declared!r}"
        module, _, name = record.value.partition(":")
        write = f'write dovetail_api = "{API_VERSION}" in that module'
        return f"{record.value} {said}", f"let the entry point name the module {module} instead" if name else write
    theirs = int(match[1]), int(match[2])
    ours = tuple(int(part) for part in API_VERSION.split("."))
    if theirs[0] == ours[0] and (theirs[1] == ours[1] or (ours[0] > 0 and theirs[1] < ours[1])):
        return None
    late = HOST if theirs > ours else record.distribution
    return (
        f"{record.value} is written for plugin API {declared}; this dovetail has {API_VERSION}",
        f"pip install --upgrade {late}",
    )


def sort_key(version: str) -> tuple[bool, object]:
    """Orders versions by PEP 440, what is not a version before everything else."""
    from packaging.version import InvalidVersion, Version

    try:
        return True, Version(version)
    except InvalidVersion:
        return False, version
