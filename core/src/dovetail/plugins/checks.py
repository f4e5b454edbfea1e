"""Strict checks of a plugin object against the hook specifications. All problems are reported at once.

Only attributes named `dovetail_*` are looked at, and none is evaluated, so that a property on a plugin object never runs.
pluggy by itself ignores a function whose marker was forgotten, ignores an unknown hook name, and never passes an argument
that has a default; each of these is an error here.
"""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dovetail import hookspecs
from dovetail.errors import PluginFailed, did_you_mean
from dovetail.plugins.records import PACKS

__all__ = ["HOOKS", "check_plugin"]


HOOKS: dict[str, tuple[str, ...]] = {
    "dovetail_device_info": ("devices",),
    "dovetail_device_open": ("devices",),
    "dovetail_virtual_device": ("virtual_devices",),
    "dovetail_register_ops": PACKS,
    "dovetail_register_translations": PACKS,
    "dovetail_read_model": ("frontends",),
    "dovetail_write_model": ("frontends",),
    "dovetail_write_unbound_model": ("frontends",),
    "dovetail_graph_passes": ("hooks",),
    "dovetail_add_commands": ("commands", "hooks"),
    "dovetail_write_trace": ("commands", "hooks"),
}
"""Hook -> the kinds of plugin for which it is called."""

_REGISTERING = ("dovetail_register_ops", "dovetail_register_translations")
_REQUIRED: dict[str, tuple[tuple[str, ...], ...]] = {
    "devices": (("dovetail_device_info",), ("dovetail_device_open",)),
    "virtual_devices": (("dovetail_virtual_device",),),
    "frontends": (("dovetail_read_model",),),
    **dict.fromkeys(PACKS, (_REGISTERING,)),
}
"""The hooks required of each kind of plugin: one of each group."""


def check_plugin(plugin: object, kinds: Iterable[str]) -> None:
    """Raise `PluginFailed` with everything that is wrong; `kinds` are those for which the plugin has entry points."""
    problems = list(_problems(plugin, tuple(kinds)))
    if problems:
        raise PluginFailed("; ".join(problems), hint="the hooks and their arguments are listed in dovetail.hookspecs")


def _problems(plugin: object, kinds: tuple[str, ...]) -> Iterator[str]:
    if isinstance(plugin, type):
        yield f"the plugin is the class {plugin.__qualname__}; a module or an instance is needed"
        return
    names = [name for name in dir(plugin) if name.startswith("dovetail_")]
    candidates = {name: inspect.getattr_static(plugin, name, None) for name in names}
    hooks = {name: value for name, value in candidates.items() if _may_be_hook(value)}
    for name, value in hooks.items():
        yield from _problems_of_hook(plugin, name, value, kinds)
    for group in dict.fromkeys(group for kind in kinds for group in _REQUIRED.get(kind, ())):
        if not hooks.keys() & set(group):
            yield f"{' or '.join(group)} is missing"


def _may_be_hook(value: object) -> bool:
    return isinstance(value, property | staticmethod | classmethod) or inspect.isroutine(value)


def _problems_of_hook(plugin: object, name: str, value: object, kinds: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, property):
        yield f"{name} is a property, not a function"
    elif name not in HOOKS:
        yield f"unknown hook {name}. {did_you_mean(name, HOOKS)}"
    elif (options := _marker(value)) is None:
        yield f"{name} lacks the @hookimpl marker"
    else:
        if not set(HOOKS[name]).intersection(kinds):
            groups = " or ".join(f"dovetail.{kind}" for kind in HOOKS[name])
            yield f"{name} is only called for plugins of the group {groups}"
        if options.get("wrapper") or options.get("hookwrapper") or options.get("specname"):
            yield f"{name} is marked with wrapper, hookwrapper or specname, which are not for plugins"
        yield from _problems_of_arguments(name, getattr(plugin, name))


def _marker(value: object) -> dict[str, Any] | None:
    """The options of `@hookimpl`; None without it."""
    holder = value if hasattr(value, "dovetail_impl") else getattr(value, "__func__", value)
    options = getattr(holder, "dovetail_impl", None)
    return options if isinstance(options, dict) else None


def _problems_of_arguments(name: str, function: Callable[..., object]) -> Iterator[str]:
    accepted = _plain_arguments(getattr(hookspecs, name)) or ()
    given = _plain_arguments(function)
    if given is not None and set(given) <= set(accepted):
        return
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            yield f"{name} declares {parameter}, which is never passed; its arguments are ({', '.join(accepted)})"
        elif parameter.name not in accepted:
            yield f"{name} has no argument {parameter.name!r}. {did_you_mean(parameter.name, accepted)}"
        elif parameter.default is not parameter.empty:
            yield f"{name} gives {parameter.name!r} a default, so it would never be passed"


def _plain_arguments(function: Callable[..., object]) -> tuple[str, ...] | None:
    """The names of arguments that are all positional and without defaults, as in all specifications; None for other callables.

    Signatures of `inspect` would take more than half of the time of a plugin's checks.
    """
    if not inspect.isfunction(function) or {"__wrapped__", "__signature__"} & vars(function).keys():
        return None
    code = function.__code__
    if code.co_kwonlyargcount or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS) or function.__defaults__:
        return None
    return code.co_varnames[: code.co_argcount]
