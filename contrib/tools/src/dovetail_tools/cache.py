"""`dovetail cache`: what devices keep on disk between processes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import command, print_json, print_table, size
from dovetail.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from dovetail.cache import Entry

__all__ = ["cache"]


@click.group()
def cache() -> None:
    """See and clear what devices keep on disk.

    This is compiled kernels, tuning results, and facts about drivers. Deleting it costs time, but changes no results. The
    folder is DOVETAIL_CACHE_DIR, else dovetail's in the platform's cache folder.
    """


@command("dovetail cache path", name="path")
def path(as_json: bool) -> None:
    """Print the folder of the cache, whether it exists or not.

    \b
    JSON: {"path"}
    """
    folder = str(_folder())
    if as_json:
        print_json({"path": folder})
    else:
        click.echo(folder)


@command("dovetail cache list --json", name="list")
def list_(as_json: bool) -> None:
    """List the sections of the cache, their sizes and last use.

    \b
    JSON: {"path", "sections": [{"section", "entries", "bytes", "used"}]}
          "used" is in seconds since 1970.
    """
    from dovetail.cache import list_cache

    folder = _folder()
    sections = [_summary(section, entries) for section, entries in _by_section(list_cache(folder)).items()]
    if as_json:
        print_json({"path": str(folder), "sections": sections})
        return
    rows = [(s["section"], s["entries"], size(s["bytes"]), _date(s["used"])) for s in sections]
    print_table(str(folder), ("section", ">entries", ">size", "used last"), rows, empty="nothing is kept here")


@command("dovetail cache clear\ndovetail cache clear opencl", name="clear")
@click.argument("section", required=False, default="")
def clear(section: str, as_json: bool) -> None:
    """Delete all entries, or those of SECTION. Other files are kept.

    \b
    JSON: {"path", "entries", "bytes"}, what was deleted
    """
    from dovetail.cache import clear_cache, list_cache

    folder = _folder()
    known = _by_section(list_cache(folder))
    if section and section not in known:
        raise UsageError(f"{folder} has no section {section!r}", hint=did_you_mean(section, known) or "it is empty")
    gone = clear_cache(folder, section)
    count, nbytes = len(gone), sum(entry.nbytes for entry in gone)
    if as_json:
        print_json({"path": str(folder), "entries": count, "bytes": nbytes})
    else:
        click.echo(f"Deleted {count} entries, {nbytes:,} bytes, from {folder}")


for _command in (path, list_, clear):
    cache.add_command(_command)


def _folder() -> Path:
    from dovetail.cache import cache_folder

    folder = cache_folder()
    if folder is None:
        raise UsageError("no folder for the cache: this user has no home", hint="set DOVETAIL_CACHE_DIR to a folder")
    return folder


def _by_section(entries: "tuple[Entry, ...]") -> "dict[str, list[Entry]]":
    found: dict[str, list[Entry]] = {}
    for entry in entries:
        found.setdefault(entry.section, []).append(entry)
    return found


def _summary(section: str, entries: "list[Entry]") -> dict[str, Any]:
    nbytes, used = sum(entry.nbytes for entry in entries), max(entry.used for entry in entries)
    return {"section": section, "entries": len(entries), "bytes": nbytes, "used": used}


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
