"""`dovetail ops`: the operators that are known, and how each can run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dovetail.cli._command import command as make_command
from dovetail.cli._command import extension_option
from dovetail.cli._complete import complete_devices, complete_operators
from dovetail.cli._output import print_json, print_table
from dovetail.errors import did_you_mean
from dovetail.plugins.records import STANDARD_DOMAIN, full_name, plain_domain

if TYPE_CHECKING:
    from dovetail.cli._kernel_files import DevicePackage
    from dovetail.operators.operator import Operator
    from dovetail.operators.translation import Translation
    from dovetail.plugins import PluginManager


@make_command("dovetail ops --domain com.acme --json\ndovetail ops Conv")
@click.argument("name", required=False, shell_complete=complete_operators)
@click.option("--domain", help="Only operators of this domain; ai.onnx is the standard one.")
@click.option("--device", shell_complete=complete_devices, help="Only the column of this device type.")
@extension_option
def command(name: str | None, domain: str | None, device: str | None, extensions: tuple[str, ...], as_json: bool) -> None:
    """List the operators of all op packs, or describe one.

    There is one row for each version of a definition, and one for each other name that models may give it. With NAME (Conv,
    com.acme::Conv or a file stem), ports, data types, attributes, other names and kernels of each version are printed.

    "kernel" under a device means that its package has a file for the operator. Other operators run on every device too: by a
    kernel source or a composition in their definition, or by their NumPy reference on the reference device.

    \b
    JSON: {"operators": [{"operator", "domain", "since", "stem", "provider",
           "brings": ["reference", "composition", "control flow",
                      "<language> kernel", "another name of <what>"],
           "kernels": {device type: [files]}}]}
    With NAME each has also: "summary", "names": [other names],
           "inputs" and "outputs": [{"name", "type", "optional",
           "variadic", "accepts": [data types]}],
           "attributes": [{"name", "type", "required", "default"}]
    """
    from dovetail.cli._kernel_files import device_packages
    from dovetail.cli._models import make_core

    manager = make_core(extensions).plugins
    wanted = None if device is None else manager.device_type(device)
    packages = [package for package in device_packages(manager.records()) if wanted in (None, package.device)]
    if name is not None:
        _describe_one(manager, name, domain, packages, as_json)
        return
    rows = _describe(manager, domain, packages)
    if as_json:
        print_json({"operators": rows})
        return
    columns = ("operator", ">since", "provided by", "its definition brings", *(package.device for package in packages))
    cells = [
        (
            r["operator"],
            r["since"],
            r["provider"],
            ", ".join(r["brings"]),
            *("kernel" if k else "" for k in r["kernels"].values()),
        )
        for r in rows
    ]
    print_table(f"{len(rows)} operators", columns, cells)


def _describe_one(
    manager: "PluginManager", name: str, domain: str | None, packages: "list[DevicePackage]", as_json: bool
) -> None:
    """Print the versions of an operator. Raises `UnknownOperator` for a name that none has."""
    from dovetail.cli._kernel_files import operators_named
    from dovetail.cli._operator import describe_definition, print_definition

    everything = manager.operators()
    stems = {operator.stem for operator in everything}
    asked = name if domain is None or "::" in name else f"{domain}::{name}"
    found = [
        {**_row(manager, operator, None, packages, stems), **describe_definition(operator, everything)}
        for versions in operators_named(manager, asked)
        for operator in versions
    ]
    if as_json:
        print_json({"operators": found})
        return
    for one in found:
        print_definition(one)


def _describe(manager: "PluginManager", domain: str | None, packages: "list[DevicePackage]") -> list[dict[str, Any]]:
    stems = {operator.stem for operator in manager.operators()}
    rows = [
        _row(manager, operator, name, packages, stems)
        for operator in _of_domain(manager, domain)
        for name in _names_in(operator, domain)
    ]
    return sorted(rows, key=lambda row: (row["domain"], row["operator"], row["since"]))


def _row(
    manager: "PluginManager",
    operator: "type[Operator]",
    name: "Translation | None",
    packages: "list[DevicePackage]",
    stems: set[str],
) -> dict[str, Any]:
    """One definition under its own name, or under that of a translation."""
    from dovetail.operators.translated import target

    return {
        "operator": operator.key if name is None else full_name(name.domain, name.op_type),
        "domain": operator.domain if name is None else name.domain,
        "since": operator.since,
        "stem": operator.stem,
        "provider": manager.provider(operator),
        "brings": brought(operator) if name is None else [f"another name of {target(operator)}"],
        "kernels": {package.device: package.kernels(operator.stem, stems) for package in packages},
    }


def _names_in(operator: "type[Operator]", domain: str | None) -> "Iterator[Translation | None]":
    """None for the operator's own name, and the translations by which a model of the domain writes it otherwise."""
    wanted = None if domain is None else plain_domain(domain)
    if wanted in (None, operator.domain):
        yield None
    from dovetail.operators.translated import is_translated

    if not is_translated(operator):
        yield from (t for t in operator.translations if wanted in (None, plain_domain(t.domain)))


def _of_domain(manager: "PluginManager", domain: str | None) -> "tuple[type[Operator], ...]":
    found = manager.operators(domain)
    if domain is not None and not found:
        known = {operator.domain or STANDARD_DOMAIN for operator in manager.operators()}
        raise click.UsageError(f"No operator of domain {domain!r} is known. {did_you_mean(domain, known)}")
    return found


def brought(operator: "type[Operator]") -> list[str]:
    """The kernels and forms of an operator class, or the operator that it translates to."""
    from dovetail.operators.translated import is_translated, target

    if is_translated(operator):
        return [f"another name of {target(operator)}"]
    parts = ["reference"] if operator.has_reference() else []
    parts += ["composition"] if operator.has_composition() or operator.has_compose_in() else []
    parts += ["control flow"] if operator.has_control() else []
    return parts + sorted({f"{kernel.language} kernel" for kernel in operator.kernels})
