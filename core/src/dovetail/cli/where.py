"""`dovetail where`: the files that define, test and run an operator."""

from typing import TYPE_CHECKING, Any

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._command import extension_option
from dovetail.cli._complete import complete_operators
from dovetail.cli._output import print_json, print_table

if TYPE_CHECKING:
    from dovetail.operators.operator import Operator
    from dovetail.plugins import PluginManager


@make_command("dovetail where Conv")
@click.argument("op", shell_complete=complete_operators)
@extension_option
def command(op: str, extensions: tuple[str, ...], as_json: bool) -> None:
    """Print the files that define, test and run operator OP.

    OP is a name (Conv), a name with its domain (com.acme::Conv) or a file stem (conv).

    \b
    JSON: {"operators": [{"operator", "provider", "stem", "since": [],
           "definition": [files], "cases": [files],
           "sources": [{"language", "origin", "entry"}],
           "kernels": [{"device", "provider", "files": []}]}]}
    """
    from dovetail.cli._kernel_files import operators_named
    from dovetail.cli._models import make_core

    manager = make_core(extensions).plugins
    described = [_describe(manager, versions) for versions in operators_named(manager, op)]
    if as_json:
        print_json({"operators": described})
        return
    for one in described:
        print_table(f"{one['operator']}, {one['provider']}", ("what", "where"), _rows(one))


def _describe(manager: "PluginManager", versions: "list[type[Operator]]") -> dict[str, Any]:
    from dovetail.cli._kernel_files import case_files, definition_files, device_packages

    operator = versions[-1]
    stems = {o.stem for o in manager.operators()}
    packages = device_packages(manager.records())
    return {
        "operator": operator.key,
        "provider": manager.provider(operator),
        "stem": operator.stem,
        "since": [o.since for o in versions],
        "definition": definition_files(versions),
        "cases": case_files(versions),
        "sources": [
            {"language": kernel.language, "origin": getattr(kernel, "origin", ""), "entry": getattr(kernel, "entry", "")}
            for kernel in operator.kernels
        ],
        "kernels": [{"device": p.device, "provider": p.provider, "files": p.kernels(operator.stem, stems)} for p in packages],
    }


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
