"""`dovetail where`: the files that define, test and run an operator."""

import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    command,
    complete_operators,
    extension_option,
    make_core,
    print_json,
    print_table,
)
from dovetail_tools.kernel_files import device_packages
from dovetail_tools.names import operators_named

if TYPE_CHECKING:
    from dovetail.op import Operator
    from dovetail.runtime import Core

__all__ = ["where"]


@command("dovetail where Conv")
@click.argument("op", shell_complete=complete_operators)
@extension_option
def where(op: str, extensions: tuple[str, ...], as_json: bool) -> None:
    """Print the files that define, test and run operator OP.

    OP is a name (Conv), a name with its domain (com.acme::Conv) or a file stem (conv).

    \b
    JSON: {"operators": [{"operator", "provider", "stem", "since": [],
           "definition": [files], "cases": [files],
           "sources": [{"language", "origin", "entry"}],
           "kernels": [{"device", "provider", "files": []}]}]}
    """
    core = make_core(extensions)
    described = [_describe(core, versions) for versions in operators_named(core, op)]
    if as_json:
        print_json({"operators": described})
        return
    for one in described:
        print_table(f"{one['operator']}, {one['provider']}", ("what", "where"), _rows(one))


def _describe(core: "Core", versions: "list[type[Operator]]") -> dict[str, Any]:
    operator = versions[-1]
    stems = {o.stem for o in core.plugins.operators()}
    packages = device_packages(core.plugins.records())
    return {
        "operator": operator.key,
        "provider": core.plugins.provider(operator),
        "stem": operator.stem,
        "since": [o.since for o in versions],
        "definition": _definition_files(versions),
        "cases": _case_files(versions),
        "sources": [
            {"language": kernel.language, "origin": getattr(kernel, "origin", ""), "entry": getattr(kernel, "entry", "")}
            for kernel in operator.kernels
        ],
        "kernels": [{"device": p.device, "provider": p.provider, "files": p.kernels(operator.stem, stems)} for p in packages],
    }


def _definition_files(operators: "Iterable[type[Operator]]") -> list[str]:
    """The source files of operator classes; classes made in a notebook have none."""
    return sorted({file for operator in operators if (file := _source(operator))})


def _source(operator: "type[Operator]") -> str | None:
    try:
        return inspect.getsourcefile(operator)
    except TypeError:
        return None


def _case_files(operators: "Iterable[type[Operator]]") -> list[str]:
    """The conformance cases: `cases/<stem>.py` in the top-level package of each class, or the table of those without a file."""
    found = set()
    for operator in operators:
        package = sys.modules.get(operator.__module__.partition(".")[0])
        for folder in getattr(package, "__path__", ()):
            file, table = Path(folder, "cases", f"{operator.stem}.py"), Path(folder, "cases", "_table.py")
            if file.is_file():
                found.add(str(file))
            elif table.is_file() and f'"{operator.op_type}":' in table.read_text("utf-8"):
                found.add(str(table))
    return sorted(found)


def _rows(one: dict[str, Any]) -> list[tuple[str, str]]:
    since = ", ".join(str(version) for version in one["since"])
    rows = [("definition", file) for file in one["definition"]] or [("definition", "made in this session, no file")]
    rows.append(("since version", since))
    rows += [("cases", file) for file in one["cases"]]
    rows += [(f"{source['language']} kernel", f"{source['origin']}: {_entries(source['entry'])}") for source in one["sources"]]
    for kernel in one["kernels"]:
        rows += [(f"{kernel['device']} kernels", file) for file in kernel["files"] or ["none of its own"]]
    return rows


def _entries(entry: Any) -> str:
    return entry if isinstance(entry, str) else ", ".join(entry.values())
