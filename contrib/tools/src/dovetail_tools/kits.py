"""The checks that fit an installed plugin, by its kind."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from dovetail.command import Program
from dovetail.errors import PluginFailed, UsageError
from dovetail.locks import cached_property
from dovetail.op import Operator
from dovetail.plugins import PACKS, PluginRecord, check_manifest
from dovetail.runtime import REFERENCE_DEVICE, Core
from dovetail.testing.case_files import random_kinds
from dovetail.testing.check import PASSED, Check, Verdict, require
from dovetail.testing.devices import RANDOM_GRAPHS, DeviceChecks
from dovetail.testing.frontends import FrontendChecks
from dovetail.testing.kit import Kit
from dovetail.testing.packs import OpPackChecks
from dovetail.testing.random_graphs import random_feeds, random_model

__all__ = ["HookChecks", "VirtualDeviceChecks", "kit_for", "session_for"]


def kit_for(record: PluginRecord, make_core: Callable[[], Core] | None = None) -> Kit:
    """The checks of a plugin: for a device those of its first device, for a virtual device those of `VirtualDeviceChecks`.

    Loads nothing yet.

    `make_core` gives sessions in which the plugin may be loaded; the default is `session_for`.
    """
    make_core = make_core or partial(session_for, record)
    if record.kind == "devices":
        return DeviceChecks(record.key.upper(), make_core)
    if record.kind == "virtual_devices":
        return VirtualDeviceChecks(record.key.upper(), make_core)
    if record.kind == "frontends":
        return FrontendChecks(record.key, make_core)
    if record.kind in PACKS:

        def provided(core: Core, cls: type[Operator]) -> bool:
            return core.plugins.provider(cls) == record.provider

        return OpPackChecks(record.key, make_core, chosen=provided)
    return HookChecks(record.id, make_core, has_passes=record.kind == "hooks")


def session_for(record: PluginRecord, plugins: str | None = None) -> Core:
    """A session that prefers the plugin, with the plugin loaded; `plugins` is an allow or block list.

    Raises `PluginFailed` with the reason in its record when it cannot be loaded.
    """
    core = Core(plugins=plugins, prefer=(record.id,))
    found = core.plugins.load(record.id)
    if found.state != "loaded":
        core.close()
        raise PluginFailed(f"{record.id} is {found.state}: {found.reason}", hint=found.hint)
    return core


class VirtualDeviceChecks(DeviceChecks):
    """The checks of a virtual device over the reference device; over that twice where it refuses a single device."""

    def __init__(self, word: str, make_core: Callable[[], Core] = Core, seed: int = 7) -> None:
        super().__init__(f"{word}:{REFERENCE_DEVICE}", make_core, seed)

    def open(self) -> None:
        """As the base's. Raises `UsageError` that names the command with devices where the virtual device refuses both."""
        try:
            super().open()
        except UsageError as error:
            word = self.device.partition(":")[0]
            self.device += f",{REFERENCE_DEVICE}"
            try:
                super().open()
            except UsageError:
                hint = f"name devices that it accepts: dovetail plugins test {word}:A,B. {error.hint}".rstrip()
                raise UsageError(error.message, hint=hint) from error


class HookChecks(Kit):
    """The checks of a plugin of `dovetail.hooks` or `dovetail.commands`: what it adds works, and changes no result."""

    def __init__(self, plugin: str, make_core: Callable[[], Core], *, has_passes: bool) -> None:
        super().__init__(make_core, seed=7)
        self._plugin, self._graphs = plugin, RANDOM_GRAPHS if has_passes else 0

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """Every check, in order."""
        return tuple(self._all())

    def _all(self) -> Iterator[Check]:
        yield Check("commands", "add_commands", self._commands)
        for index in range(self._graphs):
            yield Check("graphs", f"random-{index}", partial(self._graph, index))

    def _commands(self) -> Verdict:
        group = Program()
        self.core.plugins.add_commands(group)
        self._require_loaded()
        for name, command in group.commands.items():
            require(command.help, f"the command {name!r} has no help")
        wrong = check_manifest(self.core.plugins.record(self._plugin))
        require(not wrong, "; ".join(wrong))
        return PASSED

    def _graph(self, index: int) -> Verdict:
        rng = np.random.default_rng([self._seed, 1, index])
        model = random_model(rng, list(random_kinds().values()))
        verdict = DeviceChecks(REFERENCE_DEVICE, lambda: self.core, self._seed).against_float64(model, random_feeds(model, rng))
        self._require_loaded()
        return verdict

    def _require_loaded(self) -> None:
        record = self.core.plugins.record(self._plugin)
        require(record.state == "loaded", f"the plugin is {record.state}: {record.reason}")
