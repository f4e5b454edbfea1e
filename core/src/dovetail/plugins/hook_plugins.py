"""Plugins of `dovetail.hooks` and `dovetail.commands`: asked all together, and a failure takes only its own plugin out."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dovetail.errors import DovetailError, PluginFailed, UsageError
from dovetail.plugins.attribution import attributed
from dovetail.plugins.checks import HOOKS
from dovetail.plugins.loader import Loader, Staged
from dovetail.plugins.records import PluginRecord
from dovetail.plugins.states import PluginStates

if TYPE_CHECKING:
    from dovetail.passes.graph_pass import GraphPass
    from dovetail.tracing import Trace

__all__ = ["HookPlugins"]


class HookPlugins:
    """The plugins of one manager that are called because they are there. Callers hold the manager's lock."""

    def __init__(self, states: PluginStates, loader: Loader) -> None:
        self._states = states
        self._loader = loader
        self._attributed: dict[str, tuple[tuple[GraphPass, ...], tuple[GraphPass, ...]]] = {}

    def graph_passes(self, options: Mapping[str, Any]) -> "tuple[GraphPass, ...]":
        """The passes of all plugins, in order."""
        return tuple(one for record, passes in self._passes(options) for one in self._with_origin(record, passes))

    def _with_origin(self, record: "PluginRecord", passes: "tuple[GraphPass, ...]") -> "tuple[GraphPass, ...]":
        """The passes with their origin; the same objects as for the session's model before, where the plugin gives the same."""
        # Here, because `dovetail --help` asks for commands only, and passes take NumPy with them.
        from dovetail.passes.pipeline import attributed_to

        given, found = self._attributed.get(record.id, ((), ()))
        if len(given) != len(passes) or any(one is not other for one, other in zip(given, passes, strict=True)):
            found = attributed_to(record.provider, passes)
            self._attributed[record.id] = passes, found
        return found

    def passes_of(self, plugin: str) -> "tuple[GraphPass, ...]":
        """The passes of the plugin with this id."""
        return next((passes for record, passes in self._passes({}) if record.id == plugin), ())

    def _passes(self, options: Mapping[str, Any]) -> "list[tuple[PluginRecord, tuple[GraphPass, ...]]]":
        def ask(staged: Staged) -> "tuple[GraphPass, ...]":
            answer = staged.hooks.dovetail_graph_passes(options=options)
            return _checked_passes([] if answer is None else answer)

        return self._ask("dovetail_graph_passes", ask)

    def add_commands(self, cli: Any, plugins: Collection[str] | None = None) -> None:
        """Let plugins add commands to a `click.Group`: all, or those with these ids. Nothing is added by one that raises.

        Afterwards the records provide the commands, as `NAME: short help`.
        """

        def ask(staged: Staged) -> dict[str, Any]:
            before = dict(cli.commands)
            try:
                staged.hooks.dovetail_add_commands(cli=cli)
            except BaseException:
                cli.commands = before
                raise
            return {name: command for name, command in cli.commands.items() if name not in before}

        for record, added in self._ask("dovetail_add_commands", ask, plugins):
            lines = sorted(f"{name}: {command.get_short_help_str(100)}" for name, command in added.items() if not command.hidden)
            self._states.put(replace(self._states.now(record), provides=tuple(lines)))

    def trace_writer(self) -> "Callable[[Trace, Path], None]":
        """The trace writer of the first plugin that has one. Raises `UsageError` when none has."""
        callees = self._callees("dovetail_write_trace")
        if not callees:
            hint = "install one that has the hook dovetail_write_trace, or read the slices of request.trace()"
            raise UsageError("no installed package writes traces", hint=hint)
        record, staged = callees[0]

        def write(trace: "Trace", path: Path) -> None:
            with attributed(f"writing a trace with {record.id}", passing=(DovetailError, OSError)):
                staged.hooks.dovetail_write_trace(trace=trace, path=path)

        return write

    def _ask(
        self, hook: str, call: Callable[[Staged], Any], plugins: Collection[str] | None = None
    ) -> list[tuple[PluginRecord, Any]]:
        """The records and answers of the plugins that have the hook, in order of id but for `tryfirst` and `trylast`."""
        answers = []
        for record, staged in self._callees(hook, plugins):
            try:
                with attributed(hook, passing=(PluginFailed,)):
                    answers.append((record, call(staged)))
            except PluginFailed as error:
                self._states.fail(record, error)
        return answers

    def _callees(self, hook: str, plugins: Collection[str] | None = None) -> list[tuple[PluginRecord, Staged]]:
        asked = [
            record for record in self._states.all() if record.kind in HOOKS[hook] and (plugins is None or record.id in plugins)
        ]
        loaded = [(record, self._loader.load_if_possible(record)) for record in asked]
        callees = [(record, staged) for record, staged in loaded if staged is not None and staged.implements(hook)]
        return sorted(callees, key=lambda callee: callee[1].order(hook))


def _checked_passes(answer: object) -> "tuple[GraphPass, ...]":
    from dovetail.passes.graph_pass import GraphPass

    if not isinstance(answer, list | tuple) or not all(isinstance(one, GraphPass) for one in answer):
        hint = "return a list of dovetail.passes.GraphPass objects"
        raise PluginFailed(f"dovetail_graph_passes returned {answer!r}", hint=hint)
    return tuple(answer)
