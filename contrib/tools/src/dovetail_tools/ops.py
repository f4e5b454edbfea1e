"""`dovetail ops`: the operators that are known, and how each can run."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    command,
    complete_devices,
    complete_operators,
    extension_option,
    make_core,
    print_json,
    print_table,
)
from dovetail.errors import did_you_mean
from dovetail.plugins import STANDARD_DOMAIN, full_name, plain_domain
from dovetail_tools.kernel_files import DevicePackage, device_packages
from dovetail_tools.names import operators_named

if TYPE_CHECKING:
    from dovetail.op import Operator, Translation
    from dovetail.runtime import Core

__all__ = ["ops"]


@command("dovetail ops --domain com.acme --json\ndovetail ops Conv")
@click.argument("name", required=False, shell_complete=complete_operators)
@click.option("--domain", help="Only operators of this domain; ai.onnx is the standard one.")
@click.option("--device", shell_complete=complete_devices, help="Only the column of this device type.")
@extension_option
def ops(name: str | None, domain: str | None, device: str | None, extensions: tuple[str, ...], as_json: bool) -> None:
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
    core = make_core(extensions)
    wanted = None if device is None else core.plugins.device_type(device)
    packages = [package for package in device_packages(core.plugins.records()) if wanted in (None, package.device)]
    if name is not None:
        _describe_one(core, name, domain, packages, as_json)
        return
    rows = _describe(core, domain, packages)
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


def _describe_one(core: "Core", name: str, domain: str | None, packages: list[DevicePackage], as_json: bool) -> None:
    """Print the versions of an operator. Raises `UnknownOperator` for a name that none has."""
    from dovetail_tools.definition import describe_definition, print_definition

    everything = core.plugins.operators()
    stems = {operator.stem for operator in everything}
    asked = name if domain is None or "::" in name else f"{domain}::{name}"
    found = [
        {**_row(core, operator, None, packages, stems), **describe_definition(operator, everything)}
        for versions in operators_named(core, asked)
        for operator in versions
    ]
    if as_json:
        print_json({"operators": found})
        return
    for one in found:
        print_definition(one)


def _describe(core: "Core", domain: str | None, packages: list[DevicePackage]) -> list[dict[str, Any]]:
    stems = {operator.stem for operator in core.plugins.operators()}
    rows = [
        _row(core, operator, name, packages, stems)
        for operator in _of_domain(core, domain)
        for name in _names_in(operator, domain)
    ]
    return sorted(rows, key=lambda row: (row["domain"], row["operator"], row["since"]))


def _row(
    core: "Core",
    operator: "type[Operator]",
    name: "Translation | None",
    packages: list[DevicePackage],
    stems: set[str],
) -> dict[str, Any]:
    """One definition under its own name, or under that of a translation."""
    from dovetail.op import translation_target

    return {
        "operator": operator.key if name is None else full_name(name.domain, name.op_type),
        "domain": operator.domain if name is None else name.domain,
        "since": operator.since,
        "stem": operator.stem,
        "provider": core.plugins.provider(operator),
        "brings": _brought(operator) if name is None else [f"another name of {translation_target(operator)}"],
        "kernels": {package.device: package.kernels(operator.stem, stems) for package in packages},
    }


def _names_in(operator: "type[Operator]", domain: str | None) -> "Iterator[Translation | None]":
    """None for the operator's own name, and the translations by which a model of the domain writes it otherwise."""
    if domain is None or plain_domain(domain) == operator.domain:
        yield None
    from dovetail.op import is_translated

    if not is_translated(operator):
        yield from (t for t in operator.translations if domain is None or plain_domain(domain) == plain_domain(t.domain))


def _of_domain(core: "Core", domain: str | None) -> "tuple[type[Operator], ...]":
    found = core.plugins.operators(domain)
    if domain is not None and not found:
        known = {operator.domain or STANDARD_DOMAIN for operator in core.plugins.operators()}
        raise click.UsageError(f"No operator of domain {domain!r} is known. {did_you_mean(domain, known)}")
    return found


def _brought(operator: "type[Operator]") -> list[str]:
    """The kernels and forms of an operator class, or the operator that it translates to."""
    from dovetail.op import is_translated, translation_target

    if is_translated(operator):
        return [f"another name of {translation_target(operator)}"]
    parts = ["reference"] if operator.has_reference() else []
    parts += ["composition"] if operator.has_composition() or operator.has_compose_in() else []
    parts += ["control flow"] if operator.has_control() else []
    return parts + sorted({f"{kernel.language} kernel" for kernel in operator.kernels})
