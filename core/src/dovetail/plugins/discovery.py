"""The index: every `dovetail.*` entry point on `sys.path`, read from metadata files, importing nothing.

Folders are read directly. With `importlib_metadata` instead, `dovetail plugins list` missed its 150 ms: among 130 further
distributions, 20 fresh processes each in turn on a busy two-core machine, user and system time, least and median:
135 and 184 ms with this module, 169 and 217 ms with the library; finding the plugins alone 47 and 60 ms, against 98 and 125 ms.
The library parses the METADATA of each plugin as an e-mail with its README. And this way the order is ours: `sys.path`, then
the newest version, never the order in which a file system lists a folder. Path entries that are files (zip archives) are left
to `importlib_metadata`.
"""

import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from dovetail.dataclass import dataclass
from dovetail.locks import cached_property
from dovetail.plugins.records import EXCLUSIVE, HOST, KINDS, PluginRecord, normalized
from dovetail.protocol import Protocol

__all__ = ["index", "reinstall"]

_Fingerprint = tuple[tuple[str, int], ...]
_cached: tuple[_Fingerprint, tuple[PluginRecord, ...]] | None = None


class _Readable(Protocol):
    def read_text(self, filename: str) -> str | None: ...


@dataclass(frozen=True)
class _Copy:
    """One metadata folder of a distribution. `read` gives the text of a file in it, `""` when there is none.

    Of most distributions only `entry_points` is read.
    """

    name: str
    version: str
    location: str
    rank: int
    entry_points: str
    read: Callable[[str], str]

    @cached_property
    def metadata(self) -> str:
        return self.read("METADATA") or self.read("PKG-INFO")


def index() -> tuple[PluginRecord, ...]:
    """The records of all installed plugins, sorted by id; scanned again when `sys.path` or an entry's modification time changed.

    Records are in state `found`, or `failed` / `incompatible` when the metadata alone shows that they cannot be loaded.
    """
    global _cached
    fingerprint = tuple((entry, _mtime(entry)) for entry in sys.path)
    if _cached is None or _cached[0] != fingerprint:
        _cached = fingerprint, tuple(sorted(_scan(), key=lambda record: record.id))
    return _cached[1]


def _mtime(entry: str) -> int:
    try:
        return os.stat(entry or ".").st_mtime_ns
    except OSError:
        return -1


def _scan() -> Iterator[PluginRecord]:
    copies: dict[str, list[_Copy]] = {}
    for rank, entry in enumerate(_unique_entries()):
        for copy in _copies_in(entry, rank):
            copies.setdefault(copy.name, []).append(copy)
    for found in copies.values():
        if any(f"[{HOST}." in copy.entry_points for copy in found):
            yield from _records_of(found)


def _unique_entries() -> Iterator[str]:
    seen: set[tuple[int, int]] = set()
    for entry in sys.path:
        try:
            status = os.stat(entry or ".")
        except OSError:
            continue
        if (identity := (status.st_dev, status.st_ino)) not in seen:
            seen.add(identity)
            yield entry or "."


def _copies_in(entry: str, rank: int) -> Iterator[_Copy]:
    if not os.path.isdir(entry):
        yield from _copies_in_archive(entry, rank)
        return
    try:
        names = sorted(name for name in os.listdir(entry) if name.endswith((".dist-info", ".egg-info")))
    except OSError:
        return
    for name in names:
        # pip renames what it is about to delete to "~name" and leaves it there when it is interrupted.
        if not name.startswith("~"):
            distribution, _, version = name.rpartition(".")[0].partition("-")
            read = partial(_text_in, f"{entry}/{name}")
            yield _Copy(normalized(distribution), version.partition("-")[0], entry, rank, read("entry_points.txt"), read)


def _text_in(folder: str, file: str) -> str:
    try:
        with open(f"{folder}/{file}", "rb", buffering=0) as stream:  # half of the time that text takes
            return stream.readall().decode("utf-8", "replace").replace("\r\n", "\n")
    except OSError:
        return ""


def _copies_in_archive(entry: str, rank: int) -> Iterator[_Copy]:
    from importlib_metadata import distributions

    def reader(distribution: "_Readable") -> Callable[[str], str]:
        return lambda file: distribution.read_text(file) or ""

    for found in distributions(path=[entry]):
        header = _header(found.read_text("METADATA") or found.read_text("PKG-INFO") or "")
        if header.get("name"):
            read, version = reader(found), header.get("version", [""])[0]
            yield _Copy(normalized(header["name"][0]), version, entry, rank, read("entry_points.txt"), read)


def _records_of(copies: list[_Copy]) -> Iterator[PluginRecord]:
    """The records of one distribution: those of its first copy that has metadata, with the other copies noted."""
    whole = [copy for copy in copies if copy.metadata]
    if not whole:
        for record in _entry_points(copies[0].entry_points, _base(copies[0])):
            reason = f"{record.location} holds a half-removed copy of {record.distribution}: METADATA is missing"
            yield replace(record, state="failed", reason=reason, hint=reinstall(record.distribution))
        return
    used, *others = _by_precedence(whole)
    duplicates = tuple(f"{copy.version} in {copy.location}" for copy in others)
    yield from _entry_points(used.entry_points, replace(_base(used), duplicates=duplicates))


def _base(copy: _Copy) -> PluginRecord:
    """Shared by the records of one distribution."""
    header = _header(copy.metadata)
    project = _editable_project(copy.read("direct_url.json"))
    return PluginRecord(
        distribution=copy.name,
        version=header.get("version", [copy.version])[0],
        kind="",
        key="",
        value="",
        requires=tuple(line for line in header.get("requires-dist", []) if _is_on_host(line)),
        location=project or os.path.abspath(copy.location),
        editable=bool(project),
    )


def _is_on_host(requirement: str) -> bool:
    """Whether a line of Requires-Dist is about dovetail itself, not about a package whose name begins so."""
    after = requirement[len(HOST) :].lstrip()[:1]
    return requirement[: len(HOST)].lower() == HOST and not (after.isalnum() or after in ("_", ".", "-"))


def _by_precedence(copies: list[_Copy]) -> list[_Copy]:
    """First on `sys.path` first; of two in the same folder (an upgrade that was interrupted) the newest."""
    if len(copies) == 1:
        return copies
    from dovetail.plugins.versions import sort_key

    newest_first = sorted(copies, key=lambda copy: sort_key(copy.version), reverse=True)
    return sorted(newest_first, key=lambda copy: copy.rank)


def _header(metadata: str) -> dict[str, list[str]]:
    """The header fields of a METADATA file, lower-cased names; the description is not looked at."""
    fields: dict[str, list[str]] = {}
    for line in metadata.partition("\n\n")[0].splitlines():
        name, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            fields.setdefault(name.lower(), []).append(value.strip())
    return fields


def _editable_project(direct_url: str) -> str:
    """The project folder from direct_url.json (PEP 610); `""` for an ordinary installation."""
    if '"editable"' not in direct_url:
        return ""
    import json  # 1 ms at start-up, which installations from a folder or a repository need not pay

    try:
        origin = json.loads(direct_url)
        editable, url = origin["dir_info"]["editable"], origin["url"]
    except (ValueError, KeyError, TypeError):
        return ""
    if editable is not True or not isinstance(url, str):
        return ""
    from urllib.parse import unquote

    return unquote(url.removeprefix("file://"))


def _entry_points(text: str, base: PluginRecord) -> Iterator[PluginRecord]:
    """One record for each entry point of a `dovetail.*` group in an entry_points.txt."""
    seen: dict[tuple[str, str], PluginRecord] = {}
    kind = ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[]").strip()
            kind = group.removeprefix(f"{HOST}.") if group.startswith(f"{HOST}.") else ""
        elif kind and line and not line.startswith(("#", ";")):
            record = _entry_point(line, kind, base)
            if (earlier := seen.get((kind, record.key))) is not None:
                record = _malformed(earlier, f"the entry point {record.key!r} is declared twice")
            seen[kind, record.key] = record
    return iter(seen.values())


def _entry_point(line: str, kind: str, base: PluginRecord) -> PluginRecord:
    key, equals, value = (part.strip() for part in line.partition("="))
    if kind in EXCLUSIVE:
        key = key.lower()
    record = replace(base, kind=kind, key=key, value=value)
    if kind not in KINDS:
        return _unknown_group(record)
    if not equals or not key or not all(part.isidentifier() for part in value.replace(":", ".", 1).split(".")):
        return _malformed(record, f"the entry point {line!r} is not of the form `name = module` or `name = module:object`")
    if kind == "frontends" and key.startswith("."):
        return _malformed(record, f"the entry point {line!r} is for a suffix with its dot; accepted: {key[1:]!r}")
    return record


def _malformed(record: PluginRecord, reason: str) -> PluginRecord:
    return replace(record, state="failed", reason=reason, hint=f"report this to the authors of {record.distribution}")


def _unknown_group(record: PluginRecord) -> PluginRecord:
    from dovetail.errors import did_you_mean

    hint = did_you_mean(f"{HOST}.{record.kind}", [f"{HOST}.{kind}" for kind in KINDS])
    reason = f"this dovetail has no entry-point group {HOST}.{record.kind}"
    return replace(
        record, state="incompatible", reason=reason, hint=f"{hint} Or it needs a newer dovetail: pip install --upgrade {HOST}"
    )


def reinstall(distribution: str) -> str:
    """The pip line that puts back a damaged installation."""
    return f"pip install --force-reinstall {distribution}"
