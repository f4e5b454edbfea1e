"""Does a plugin fit this dovetail? Its distribution's requirement, before import; its `dovetail_api`, after.

`packaging` is imported only for requirements that are not a plain list of comparisons with release numbers: it costs 15 ms
of the 150 that `dovetail plugins list` has.
"""

from collections.abc import Callable
from functools import cache
from operator import eq, ge, gt, le, lt, ne

from dovetail._version import __version__
from dovetail.plugins.records import HOST, PluginRecord

__all__ = ["API_VERSION", "api_mismatch", "host_version", "requirement_mismatch", "sort_key"]

API_VERSION = "1.0"
"""The version of the plugin contract: hooks, `dovetail.op`, `dovetail.device`, `dovetail.frontend`. The caret rule holds."""

_COMPARE: dict[str, Callable[..., bool]] = {">=": ge, "<=": le, "==": eq, "!=": ne, ">": gt, "<": lt}


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
    plain, semicolon, marker = requirement.partition(";")
    if semicolon:
        return True if _is_extra(marker) else None
    clauses = [_plain_clause(text.strip()) for text in plain[len(HOST) :].strip().removeprefix("(").removesuffix(")").split(",")]
    if None in clauses or not _is_release(running):
        return None
    return all(clause[0](_release(running), _release(clause[1])) for clause in clauses if clause)


def _plain_clause(text: str) -> tuple[Callable[..., bool], str] | None:
    """`>=0.1` as the comparison and the release number; None for a clause of another form."""
    sign = next((sign for sign in _COMPARE if text.startswith(sign)), "")
    version = text[len(sign) :].strip()
    return (_COMPARE[sign], version) if sign and _is_release(version) else None


def _is_extra(marker: str) -> bool:
    """Whether a marker is `extra == 'name'`."""
    name, _, value = (part.strip() for part in marker.partition("=="))
    quoted = len(value) > 2 and value[0] == value[-1] and value[0] in ("'", '"')
    return name == "extra" and quoted and value.count(value[0]) == 2


def _is_release(version: str) -> bool:
    return all(part.isdecimal() for part in version.split("."))


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
    numbers = declared.split(".") if isinstance(declared, str) else []
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        said = "does not state dovetail_api" if declared is None else f"states dovetail_api = {declared!r}"
        module, _, name = record.value.partition(":")
        write = f'write dovetail_api = "{API_VERSION}" in that module'
        return f"{record.value} {said}", f"let the entry point name the module {module} instead" if name else write
    theirs = int(numbers[0]), int(numbers[1])
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
