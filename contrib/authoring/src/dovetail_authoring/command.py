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
from typing import TYPE_CHECKING, Any

import click
from packaging.utils import canonicalize_name

import dovetail
from dovetail.command import command, print_json, print_text, write_file
from dovetail.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_DISTRIBUTION = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_TYPE = re.compile(r"[A-Z][A-Z0-9_]*")
_SUFFIX = re.compile(r"[a-z0-9_]+")
_KINDS = ("CPU", "DEFAULT", "GPU", "NPU")
"""Words that mean something else where a device is named."""


class _Templates(click.Group):
    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"Unknown template {args[0]!r}. {did_you_mean(args[0], self.commands)}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Templates)
def new() -> None:
    """Write a package to start from, of one of five kinds."""


_folder_option = click.option(
    "--folder", type=click.Path(path_type=Path), help="Where to write the package; must not exist.  [default: ./NAME]"
)


@command("dovetail new op-pack acme-ops --domain com.acme", name="op-pack")
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


@command("dovetail new device acme-npu --type ACME", name="device")
@click.argument("name")
@click.option("--type", "device_type", help="What users call the device.  [default: NAME in capitals: acme-npu is ACME_NPU]")
@_folder_option
def new_device(name: str, device_type: str | None, folder: Path | None, as_json: bool) -> None:
    """Write a device package with one kernel.

    All other operators run by NumPy references. NAME is the package's name for pip. The command fails when the folder exists,
    or another package provides the device.

    \b
    JSON: {"folder", "distribution", "module", "type", "files": [],
           "next": [commands]}
    """
    module = _module(name)
    device_type = module.upper().removeprefix("DOVETAIL_") if device_type is None else device_type
    _check_type(device_type)
    _check_owner("devices", device_type.lower(), name, "--type")
    _write("device", _Package(name, module, folder or Path(name), {"type": device_type}), as_json)


@command("dovetail new frontend acme-format --suffix acme", name="frontend")
@click.argument("name")
@click.option("--suffix", help="The suffix of the files, without the dot.  [default: the module's name: acme_format]")
@_folder_option
def new_frontend(name: str, suffix: str | None, folder: Path | None, as_json: bool) -> None:
    """Write a frontend that reads and writes models in a small text format.

    It has limits, errors with file and line, and tests. NAME is the package's name for pip. The command fails when the folder
    exists, or another package reads files of the suffix.

    \b
    JSON: {"folder", "distribution", "module", "suffix", "files": [],
           "next": [commands]}
    """
    module = _module(name)
    suffix = module.removeprefix("dovetail_frontend_") if suffix is None else suffix
    _check_suffix(suffix)
    _check_owner("frontends", suffix, name, "--suffix")
    _write("frontend", _Package(name, module, folder or Path(name), {"suffix": suffix}), as_json)


@command("dovetail new hooks acme-tools", name="hooks")
@click.argument("name")
@_folder_option
def new_hooks(name: str, folder: Path | None, as_json: bool) -> None:
    """Write a package with a graph pass and a command of the program, both with tests.

    NAME is the package's name for pip, and of its entry. The command fails when the folder exists, or another package has an
    entry of this name.

    \b
    JSON: {"folder", "distribution", "module", "entry", "files": [],
           "next": [commands]}
    """
    module, entry = _module(name), re.sub(r"[-._]+", "-", name).lower()
    for kind in ("commands", "hooks"):
        _check_owner(kind, entry, name, "NAME")
    _write("hooks", _Package(name, module, folder or Path(name), {"entry": entry}), as_json)


@command("dovetail new override acme-relu", name="override")
@click.argument("name")
@_folder_option
def new_override(name: str, folder: Path | None, as_json: bool) -> None:
    """Write an op pack that replaces a standard operator for users who prefer it.

    It has another definition of Relu, with cases and tests. NAME is the package's name for pip. The command fails when the
    folder exists.

    \b
    JSON: {"folder", "distribution", "module", "domain", "files": [],
           "next": [commands]}
    """
    _write("override", _Package(name, _module(name), folder or Path(name), {"domain": "ai.onnx"}), as_json)


for _each in (new_op_pack, new_device, new_frontend, new_hooks, new_override):
    new.add_command(_each)


@dataclass(frozen=True)
class _Package:
    """The files to write. `owns` has the domain, device type, suffix or entry, under its name in templates and JSON."""

    distribution: str
    module: str
    folder: Path
    owns: Mapping[str, str]

    @property
    def words(self) -> dict[str, str]:
        """The value of each placeholder of the templates."""
        major, minor = dovetail.__version__.split(".")[:2]
        words = {"name": self.distribution, "module": self.module, "since": dovetail.__version__, **self.owns}
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
    folder = files("dovetail_authoring") / "templates"
    texts = dict(sorted(text for name in ("common", template) for text in _rendered(folder / name, package.words)))
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


def _check_suffix(suffix: str) -> None:
    if not _SUFFIX.fullmatch(suffix):
        close = re.sub(r"[^a-z0-9_]+", "", suffix.lower())
        hint = f"Did you mean {close!r}?" if close else "for example: acme"
        raise UsageError(f"{suffix!r} is not a file suffix; accepted: small letters, digits and _, without the dot", hint=hint)


def _check_owner(kind: str, key: str, name: str, option: str) -> None:
    """Raise `UsageError` when another installed distribution has this entry already. Imports no plugin."""
    for record in _records():
        if (record.kind, record.key) == (kind, key) and not _is_from(record, name):
            raise UsageError(f"{key!r} belongs to {record.provider}, which is installed", hint=f"choose another with {option}")


def _records() -> Sequence[Any]:
    """The records of all installed plugins, as `dovetail plugins list` shows them."""
    return dovetail.Core().plugins.records()


def _is_from(record: Any, name: str) -> bool:
    return bool(record.distribution == canonicalize_name(name))
