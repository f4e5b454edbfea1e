"""Fake distributions: a metadata folder and modules in a temporary folder on `sys.path`."""

import importlib
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dovetail.plugins import discovery

IMPL = 'from dovetail.hookspecs import hookimpl\ndovetail_api = "1.0"\n'


class Site:
    """A folder of fake distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)

    def metadata(
        self,
        name: str,
        entry_points: Mapping[str, Mapping[str, str]],
        *,
        version: str = "1.0",
        requires: Sequence[str] = ("dovetail>=0.1",),
        editable: Path | None = None,
        suffix: str = "dist-info",
    ) -> Path:
        """Write the metadata folder of a distribution; `entry_points` maps kinds to name -> module."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.{suffix}"
        info.mkdir()
        requirements = "".join(f"Requires-Dist: {requirement}\n" for requirement in requires)
        header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requirements}"
        (info / ("METADATA" if suffix == "dist-info" else "PKG-INFO")).write_text(
            f"{header}\nRequires-Dist: a line of the description\n"
        )
        (info / "entry_points.txt").write_text(
            "".join(
                f"[dovetail.{kind}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items())
                for kind, points in entry_points.items()
            )
        )
        (info / "RECORD").write_text("")
        if editable:
            (info / "direct_url.json").write_text(f'{{"url": "{editable.as_uri()}", "dir_info": {{"editable": true}}}}')
        return info

    def standard_operators(self) -> None:
        """Install the pack of the standard domain, whose modules are importable already."""
        self.metadata(
            "dovetail-ops-onnx",
            {"ops": {"ai.onnx": "dovetail_ops_onnx"}, "hooks": {"onnx-forms": "dovetail_ops_onnx"}},
            version="0.1.0",
        )

    def module(self, name: str, source: str) -> None:
        """Write a module."""
        (self.folder / f"{name}.py").write_text(textwrap.dedent(source))
        importlib.invalidate_caches()

    def plugin(self, kind: str, key: str, source: str, *, name: str = "", **metadata: Any) -> str:
        """Write a distribution with one plugin; the marker and API version are put before the source. Returns its id."""
        name = name or f"fake-{kind}-{key.replace('.', '-')}"
        module = name.replace("-", "_")
        self.metadata(name, {kind: {key: module}}, **metadata)
        self.module(module, IMPL + textwrap.dedent(source))
        return f"{name}/{kind}/{key}"

    def run(self, code: str, **environment: str) -> str:
        """Run code in a fresh interpreter that has this folder on its path; returns what it prints."""
        paths = [str(self.folder), *sys.path]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], env=env, capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(autouse=True)
def _no_switches(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOVETAIL_PLUGINS", "DOVETAIL_PREFER"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A folder of fake distributions, the only one in which plugins are looked for; their modules are forgotten afterwards."""
    fake = Site(tmp_path / "site")
    monkeypatch.setattr(sys, "path", [str(fake.folder), *sys.path])
    monkeypatch.setattr(discovery, "sys", SimpleNamespace(path=[str(fake.folder)]))
    monkeypatch.setattr(discovery, "_cached", None)
    before = set(sys.modules)
    yield fake
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


PASS = "from dovetail.passes import GraphPass\n"


def pass_source(*names: str, marker: str = "@hookimpl") -> str:
    """The source of a plugin with passes that change nothing."""
    given = ", ".join(f"GraphPass({name!r}, 'recognise', lambda graph, context: graph)" for name in names)
    return f"{PASS}{marker}\ndef dovetail_graph_passes(options):\n    return [{given}]\n"


@pytest.fixture
def passes() -> Any:
    """`pass_source` as a fixture."""
    return pass_source


DEVICE = """
from dovetail.device import Device, DeviceInfo, Unavailable
from dovetail.errors import DeviceError

class Fake(Device):
    def __init__(self, info, options):
        self.info, self.options = info, options
    def supports(self, node): ...
    def compile(self, graph, options): ...

probes = []

@hookimpl
def dovetail_device_info(config):
    probes.append(config)
    return INFOS

@hookimpl
def dovetail_device_open(info, options):
    OPENS
"""


@pytest.fixture
def device(site: Site) -> Callable[..., str]:
    """`device(type)` installs a device plugin; `infos` and `opens` are what its hooks do, `more` is put at its end."""

    def install(
        type_: str, *, infos: str = "", opens: str = "return Fake(info, options)", more: str = "", **metadata: Any
    ) -> str:
        name = type_.upper()
        source = DEVICE.replace("INFOS", infos or f"[DeviceInfo({name!r}, {name!r}, 'CPU', 'a fake device')]")
        return site.plugin("devices", type_, source.replace("OPENS", opens) + more, **metadata)

    return install


PACK_CLASS = """
class {op_type}(Operator):
    domain = {domain!r}
    since = {since}
    def reference(self, X):
        return X
"""


def pack_source(domain: str, *op_types: str, since: int = 1) -> str:
    """The source of an op pack."""
    classes = "".join(PACK_CLASS.format(op_type=op_type, domain=domain, since=since) for op_type in op_types)
    adds = "".join(f"    registry.add({op_type})\n" for op_type in op_types)
    return f"from dovetail.op import Operator\n{classes}@hookimpl\ndef dovetail_register_ops(registry, domain):\n{adds}"


@pytest.fixture
def pack() -> Any:
    """`pack_source` as a fixture: with importlib import mode, test files cannot import this one."""
    return pack_source
