"""One definition of an operator: ports, data types, attributes, names in other formats, and kernels."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.command import print_table, print_text
from dovetail.graph import DType
from dovetail.op import is_translated, translation_target
from dovetail.plugins import full_name

if TYPE_CHECKING:
    from dovetail.op import Operator, Port

__all__ = ["describe_definition", "print_definition"]


def describe_definition(operator: "type[Operator]", everything: "Iterable[type[Operator]]") -> dict[str, Any]:
    """`summary`, `inputs`, `outputs`, `attributes`, and `names`: other names, by its translations and those in `everything`."""
    key = full_name(operator.domain, operator.op_type)
    others = [cls for cls in everything if is_translated(cls) and translation_target(cls) == key]
    foreign = [*operator.translations, *(t for cls in others for t in cls.translations)]
    return {
        "summary": (operator.__doc__ or "").strip().partition("\n")[0],
        "inputs": [_port(operator, port) for port in operator.inputs],
        "outputs": [_port(operator, port) for port in operator.outputs],
        "attributes": [_attribute(spec) for spec in operator.attributes.values()],
        "names": [full_name(t.domain, t.op_type) for t in foreign],
    }


def _port(operator: "type[Operator]", port: "Port") -> dict[str, Any]:
    accepted = operator.types.get(port.type, {dtype for dtype in DType if dtype.value == port.type})
    types = [dtype.value for dtype in DType if dtype in accepted]
    return {"name": port.name, "type": port.type, "optional": port.optional, "variadic": port.variadic, "accepts": types}


def _attribute(spec: Any) -> dict[str, Any]:
    default = spec.default
    if spec.required or not isinstance(default, bool | int | float | str | tuple):
        default = None if spec.required or default is None else str(np.asarray(default))
    return {"name": spec.name, "type": spec.type_name, "required": spec.required, "default": default}


def print_definition(one: dict[str, Any]) -> None:
    """The tables of a definition; `one` has the keys of the list of operators as well."""
    print_text(f"{one['operator']}, from version {one['since']}, {one['provider']}\n  {one['summary']}\n")
    ports = [_port_row(side, port) for side in ("input", "output") for port in one[f"{side}s"]]
    print_table("Ports", ("port", "name", "type", "accepted"), ports)
    if one["attributes"]:
        rows = [(a["name"], a["type"], "required" if a["required"] else str(a["default"])) for a in one["attributes"]]
        print_table("Attributes", ("attribute", "type", "default"), rows)
    files = {device: ", ".join(_names(files)) or "none of its own" for device, files in one["kernels"].items()}
    runs = [("definition", ", ".join(one["brings"])), *((f"{device} kernels", text) for device, text in files.items())]
    print_table("Runs by", ("what", "which"), [*runs, *(("other name", name) for name in one["names"])])


def _port_row(side: str, port: dict[str, Any]) -> tuple[str, str, str, str]:
    mark = " (optional)" * port["optional"] + " (any number)" * port["variadic"]
    return side, port["name"] + mark, port["type"], ", ".join(port["accepts"]) or "any"


def _names(files: Sequence[str]) -> list[str]:
    return [file.replace("\\", "/").rpartition("/")[2] for file in files]
