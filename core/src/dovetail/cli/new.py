"""`dovetail new`: a package to start from, which installs, lists, and passes its own tests as it is."""

import keyword
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import click

from dovetail import __version__
from dovetail._files import write_file
from dovetail.cli._command import command as make_command
from dovetail.cli._output import print_json, print_text
from dovetail.errors import UsageError, did_you_mean
from dovetail.names import DEFAULT_DEVICE

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from dovetail.plugins.records import PluginRecord

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_TYPE = re.compile(r"[A-Z][A-Z0-9_]*")
_KINDS = ("CPU", "GPU", "NPU", DEFAULT_DEVICE)
"""Words that mean something else where a device is named."""


class _Kinds(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"There is no template {args[0]!r}. {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Kinds)
def command() -> None:
    """Write a package to start from: an op pack or a device."""


_folder_option = click.option(
    "--folder", type=click.Path(path_type=Path), help="Where to write the package; must not exist.  [default: ./NAME]"
)


@make_command("dovetail new op-pack acme-ops --domain com.acme", name="op-pack")
@click.argument("name")
@click.option("--domain", help="The ONNX domain of the operators.  [default: NAME with dots: acme-ops owns acme.ops]")
@_folder_option
def new_op_pack(name: str, domain: str | None, folder: Path | None, as_json: bool) -> None:
    """Write an op pack with one operator.

    It has shape inference, a NumPy reference, an OpenCL kernel, cases and tests. NAME is the package's name for pip. The
    command fails when the folder exists, or another package owns the domain.

    \b
    JSON: {"folder", "distribution", "module", "domain", "files": [],
           "next": [commands]}
    """
    module = _module(name)
    domain = name.lower().removeprefix("dovetail-ops-").replace("-", ".") if domain is None else domain
    _check_domain(domain)
    _check_owner("ops", domain, name, "--domain")
    _write("op_pack", _Package(name, module, folder or Path(name), {"domain": domain}), as_json)


@make_command("dovetail new device acme-npu --type ACME", name="device")
@click.argument("name")
@click.option("--type", "device_type", help="What users call the device.  [default: NAME in capitals: acme-npu is ACME_NPU]")
@_folder_option
def new_device(name: str, device_type: str | None, folder: Path | None, as_json: bool) -> None:
    """Write a device package with one kernel of its own.

    All else runs by NumPy references. NAME is the package's name for pip. The command fails when the folder exists, or another
    package provides the device.

    \b
    JSON: {"folder", "distribution", "module", "type", "files": [],
           "next": [commands]}
    """
    module = _module(name)
    device_type = module.upper().removeprefix("DOVETAIL_") if device_type is None else device_type
    _check_type(device_type)
    _check_owner("devices", device_type.lower(), name, "--type")
    _write("device", _Package(name, module, folder or Path(name), {"type": device_type}), as_json)


command.add_command(new_op_pack)
command.add_command(new_device)


@dataclass(frozen=True)
class _Package:
    """The files to write: `owns` is its domain or device type, with the name that templates and JSON have for it."""

    distribution: str
    module: str
    folder: Path
    owns: Mapping[str, str]

    @property
    def words(self) -> dict[str, str]:
        """The value of each placeholder of the templates."""
        major, minor = __version__.split(".")[:2]
        words = {"name": self.distribution, "module": self.module, "since": f"{major}.{minor}", **self.owns}
        words["until"] = f"{major}.{int(minor) + 1}" if major == "0" else str(int(major) + 1)
        if "type" in self.owns:
            words["key"] = self.owns["type"].lower()
            words["prefix"] = "".join(part.capitalize() for part in self.owns["type"].split("_"))
        return words

    @property
    def next(self) -> list[str]:
        """The commands that come next."""
        place = f"./{self.folder}" if not self.folder.is_absolute() else str(self.folder)
        return [f'pip install -e "{place}[test]"', "dovetail plugins list", f"pytest {self.folder}"]


def _write(template: str, package: _Package, as_json: bool) -> None:
    if package.folder.exists():
        raise UsageError(f"{str(package.folder)!r} is there already", hint="choose another NAME, or another place with --folder")
    texts = dict(sorted(_rendered(files("dovetail.cli") / "templates" / template, package.words)))
    for name, text in texts.items():
        target = package.folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        write_file(target, text)
    if as_json:
        named = {"folder": str(package.folder), "distribution": package.distribution, "module": package.module}
        print_json({**named, **package.owns, "files": list(texts), "next": package.next})
        return
    print_text(f"Wrote {package.distribution} into {package.folder}:\n")
    print_text("\n".join(f"  {name}" for name in texts))
    print_text("\nNext:\n\n" + "\n".join(f"  {line}" for line in package.next))


def _rendered(folder: "Traversable", words: Mapping[str, str], inside: str = "") -> "list[tuple[str, str]]":
    """(name in the package, text) of each template; `MODULE` in a name stands for the module, the suffix .tmpl goes."""
    found = []
    for item in folder.iterdir():
        name = inside + item.name.replace("MODULE", words["module"]).removesuffix(".tmpl")
        if item.is_dir():
            found += _rendered(item, words, f"{name}/")
        else:
            found.append((name, Template(item.read_text("utf-8")).substitute(words)))
    return found


def _module(name: str) -> str:
    """The import name for a distribution. Raises `UsageError` when either is not valid."""
    if not _DISTRIBUTION.fullmatch(name):
        close = re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-._").lower()
        hint = f"Did you mean {close!r}?" if close else "for example: acme-ops"
        raise UsageError(f"{name!r} is not a name for a package; accepted: letters, digits, and - _ . between them", hint=hint)
    module = re.sub(r"[-._]+", "_", name).lower()
    if not module.isidentifier() or keyword.iskeyword(module):
        raise UsageError(
            f"{name!r} gives the module name {module!r}, which Python cannot import", hint=f"for example: acme-{name}"
        )
    if module in sys.stdlib_module_names or module in ("dovetail", "tests") or _is_installed(module, name):
        raise UsageError(f"{name!r} gives the module name {module!r}, which is taken", hint=f"for example: acme-{name}")
    return module


def _is_installed(module: str, name: str) -> bool:
    """Whether a package that is not a plugin of this name brings the module: the new one would be installed in its place."""
    found = find_spec(module)  # of a name without dots: nothing is imported
    return found is not None and found.origin is not None and not any(_is_from(record, name) for record in _records())


def _check_domain(domain: str) -> None:
    if not _DOMAIN.fullmatch(domain):
        raise UsageError(
            f"{domain!r} is not an operator domain; accepted: letters, digits, and . - _ between them",
            hint="for example: com.acme",
        )
    if domain == "ai.onnx" or domain.startswith("ai.onnx."):
        raise UsageError(f"the domain {domain!r} belongs to the ONNX standard", hint="choose one of your own, such as com.acme")


def _check_type(device_type: str) -> None:
    if not _TYPE.fullmatch(device_type):
        close = re.sub(r"[^A-Z0-9_]+", "_", device_type.upper()).strip("_0123456789")
        hint = f"Did you mean {close!r}?" if close else "for example: ACME"
        raise UsageError(f"{device_type!r} is not a device type; accepted: capitals, digits and _, a capital first", hint=hint)
    if device_type in _KINDS or any((r.kind, r.key) == ("virtual_devices", device_type.lower()) for r in _records()):
        raise UsageError(
            f"{device_type!r} has a meaning of its own where a device is named", hint=f"for example: ACME_{device_type}"
        )


def _check_owner(kind: str, key: str, name: str, option: str) -> None:
    """Raise `UsageError` when another installed distribution has this entry already. Imports no plugin."""
    for record in _records():
        if (record.kind, record.key) == (kind, key) and not _is_from(record, name):
            raise UsageError(f"{key!r} belongs to {record.provider}, which is installed", hint=f"choose another with {option}")


def _records() -> "Sequence[PluginRecord]":
    from dovetail.plugins import PluginManager

    return PluginManager().records()


def _is_from(record: "PluginRecord", name: str) -> bool:
    from dovetail.plugins.records import normalized

    return record.distribution == normalized(name)
