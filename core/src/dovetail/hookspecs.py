"""Every hook that a plugin can implement, and when it is called. The only list of extension points, without code.

A plugin is a module named by an entry point. It states the version of this contract it is written for, and marks its
functions with `hookimpl`. An op pack may also state `dovetail_priority`, an integer, 0 by default: of packs between which
nothing else decides, the higher comes first::

    from dovetail.hookspecs import hookimpl

    dovetail_api = "1.0"

    @hookimpl
    def dovetail_register_ops(registry, domain):
        registry.add(HSwish)

Implementations may leave out arguments that they do not need. Arguments are passed by position after the names were
matched, so defaults, `*args` and keyword-only arguments are refused, as are wrappers: a plugin cannot catch or change what
another one does. No hook is called while a model runs.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from dovetail._lazy import lazy_names

if TYPE_CHECKING:
    from dovetail.devices.contract import Device, DeviceInfo, Unavailable
    from dovetail.devices.virtual import VirtualDevice
    from dovetail.graph.model import Model
    from dovetail.passes.graph_pass import GraphPass

    # For the annotations of implementations, which import from here.
    from dovetail.plugins.registry import OpRegistry as OpRegistry
    from dovetail.tracing import Trace

__getattr__ = lazy_names(__name__, {"dovetail.plugins.registry": ("OpRegistry",)})

hookspec = pluggy.HookspecMarker("dovetail")
hookimpl = pluggy.HookimplMarker("dovetail")
"""Marks a function of a plugin as the implementation of the hook of that name."""


@hookspec(firstresult=True)
def dovetail_device_info(config: Mapping[str, Any]) -> "Sequence[DeviceInfo] | Unavailable":
    """List the devices of the plugin's type. For `dovetail.devices`.

    Called once for each `Core`, when the device type is requested or all devices are listed, on the asking thread. Must not
    create a context or compile anything: it runs when the user only wants a list. Return at least one
    `DeviceInfo`, the default device first, each named by the entry name in capitals, alone or with a number after a dot;
    or `Unavailable` with the reason and what to do about it::

        @hookimpl
        def dovetail_device_info(config):
            if not driver_is_there():
                return Unavailable("no driver", "apt install acme-driver")
            return [DeviceInfo("ACME.0", "ACME", "NPU", "Acme X1", priority=50)]
    """


@hookspec(firstresult=True)
def dovetail_device_open(info: "DeviceInfo", options: Mapping[str, Any]) -> "Device":
    """Open a device. For `dovetail.devices`.

    Called when a model is first compiled for the device, on the compiling thread. `info` is one that `dovetail_device_info`
    returned; `options` are those of `PluginManager.open_device`: a session gives none, and passes the properties of each
    compilation to `Device.configured`. Return a `Device`; raise `DeviceError` when it cannot be opened::

        @hookimpl
        def dovetail_device_open(info):
            return AcmeDevice(info)
    """


@hookspec(firstresult=True)
def dovetail_virtual_device() -> "VirtualDevice":
    """Give a device that runs models on other devices. For `dovetail.virtual_devices`.

    Called once for each `Core`, when a model is compiled for the entry name, or for `NAME:arguments`, on the asking thread.
    Opens nothing. The entry `default` serves models for which no device is named. Return a `VirtualDevice`::

        @hookimpl
        def dovetail_virtual_device():
            return Mirror()
    """


@hookspec
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of a domain. For `dovetail.ops`, `dovetail.overrides` and `dovetail.supplements`.

    Called once for each `Core`, when a model has a node of the domain, on the asking thread. `domain` is the entry name. Pass
    each operator class to `registry.add`; it raises for a class of another domain. `registry.add_package(name)` registers a
    package whose modules are named by the stems of their operators and are imported when a model has one, and
    `registry.add_package(name, {"products": ["Dot", "Outer"]})` also those that define several. Nothing is registered if any of
    it raises. Return nothing::

        @hookimpl
        def dovetail_register_ops(registry, domain):
            registry.add(HSwish)
            registry.add(HSigmoid)
    """


@hookspec
def dovetail_register_translations(registry: "OpRegistry", domain: str) -> None:
    """Translate operators of a domain into others. For `dovetail.ops`, `dovetail.overrides` and `dovetail.supplements`.

    Called directly after `dovetail_register_ops`, on the same thread; a pack without operators of its own has this hook alone.
    `domain` is the entry name: in ONNX the domain of the node; in OpenVINO IR what a layer has as its version, `extension` for an
    extension and `opset16` for an operation of that set which is not known otherwise. Pass each `Translation` to `registry.add`;
    its `to` is an operator class that exists, or a function that builds a sub-graph. Return nothing::

        @hookimpl
        def dovetail_register_translations(registry, domain):
            names = {"slope": "alpha"}
            registry.add(Translation(domain=domain, op_type="Leaky", to=LeakyRelu, attributes=names))
            registry.add(Translation(domain=domain, op_type="Swish2", to=swish))
    """


@hookspec(firstresult=True)
def dovetail_read_model(source: "Path | bytes", options: Mapping[str, Any]) -> "Model":
    """Read a model. For `dovetail.frontends`.

    Called by `Core.read_model` on the calling thread for files whose suffix is the entry name, and for bytes with that
    format. Return a `Model`; raise `FormatError` for input that is malformed::

        @hookimpl
        def dovetail_read_model(source, options):
            return read(source.read_bytes() if isinstance(source, Path) else source)
    """


@hookspec(firstresult=True)
def dovetail_write_model(model: "Model", options: Mapping[str, Any]) -> bytes:
    """Write a model as the content of a file. For `dovetail.frontends`.

    Called by `Core.write_model` on the calling thread for files whose suffix is the entry name. The operators of `model` are
    bound, every shape that does not depend on data is known, and what can be computed beforehand is a constant; the core
    writes the file. Return its content; raise `FormatError` naming the node that the format cannot hold::

        @hookimpl
        def dovetail_write_model(model, options):
            return serialized(model)
    """


@hookspec(firstresult=True)
def dovetail_write_unbound_model(model: "Model", options: Mapping[str, Any]) -> bytes:
    """Write a model as it was read or built. For `dovetail.frontends`.

    Takes the place of `dovetail_write_model` in formats that can hold open dimensions and operators of any domain by name.
    Called by `Core.write_model` on the calling thread; `model` is what the caller has: nothing is looked up, typed or computed
    before. Return the content of the file; raise `FormatError` naming the node that the format cannot hold::

        @hookimpl
        def dovetail_write_unbound_model(model, options):
            return serialized(model)
    """


@hookspec(firstresult=True)
def dovetail_graph_passes(options: Mapping[str, Any]) -> "Sequence[GraphPass]":
    """Give graph passes that run on every model. For `dovetail.hooks`, whose plugins are loaded when a model is compiled.

    Called once for each compilation, on the compiling thread; `options` are the device's properties given to `compile_model`.
    Return `GraphPass` objects, each with its stage, in the order in which they run; in a stage they follow the core's passes. A
    pass that raises, or returns something that is not a valid graph with the same inputs and outputs, is an error that names
    it::

        @hookimpl
        def dovetail_graph_passes(options):
            return [GraphPass("remove_debug_nodes", "recognise", remove_debug_nodes)]
    """


@hookspec
def dovetail_add_commands(cli: Any) -> None:
    """Add commands to the `dovetail` program. For `dovetail.commands`, and `dovetail.hooks` of packages with passes.

    Called when the program is asked for a command that it does not have, or for its help, on the main thread. `cli` is the
    `click.Group`. A name that a built-in command or another plugin has is refused; when that or anything else raises, none of
    the plugin's commands is added. `dovetail.command` has the parts of the built-in commands. Import the commands inside
    the hook, because `dovetail --help` loads all plugins of these groups. Return nothing::

        @hookimpl
        def dovetail_add_commands(cli):
            from acme_tools.commands import count

            cli.add_command(count)
    """


@hookspec
def dovetail_write_trace(trace: "Trace", path: Path) -> None:
    """Write the record of a model's plans and runs as a file. For `dovetail.commands` and `dovetail.hooks`.

    Called for the property `TRACE` when the compiled model is closed or freed, or at the end of the process, on the thread on
    which that happens; only the first plugin in order that has this hook is called. An existing file is replaced. Return
    nothing::

        @hookimpl
        def dovetail_write_trace(trace, path):
            path.write_text(str(trace.slices))
    """
