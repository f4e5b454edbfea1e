"""The record of one plugin, from its metadata alone until it is loaded."""

from typing import Literal

from dovetail.dataclass import dataclass

__all__ = [
    "EXCLUSIVE",
    "HOST",
    "IN_PROCESS",
    "KINDS",
    "PACKS",
    "STANDARD_DOMAIN",
    "PluginRecord",
    "State",
    "full_name",
    "normalized",
    "plain_domain",
]

HOST = "dovetail"
"""The distribution that loads the plugins; entry-point groups are `dovetail.<kind>`."""

IN_PROCESS = "in process"
"""The location of plugins that are not installed."""

KINDS = ("commands", "devices", "frontends", "hooks", "ops", "overrides", "supplements", "virtual_devices")

PACKS = ("ops", "overrides", "supplements")
"""The kinds that provide operators. `ops` defines a domain. `overrides` replaces operators of a domain where it is preferred.
`supplements` adds operators to a domain, and is asked only for those that no pack of kind `ops` defines."""

EXCLUSIVE = ("devices", "frontends", "virtual_devices")
"""The kinds of which one plugin serves a key. Letter case does not count in these keys."""

STANDARD_DOMAIN = "ai.onnx"
"""The written-out name of ONNX's standard domain, which models and operators call `""`."""

State = Literal["found", "blocked", "incompatible", "opt-in", "loaded", "failed", "unavailable"]
"""`found`: may be loaded, is not yet. `blocked`: switched off. `incompatible`: needs another dovetail. `opt-in`: an
override that nobody prefers. `loaded`. `failed`: raised, or is malformed. `unavailable`: works, but its hardware or driver
is missing."""


def normalized(distribution: str) -> str:
    """A distribution name as package indexes compare it: `Dovetail_Foo.Bar` -> `dovetail-foo-bar`."""
    return "-".join(filter(None, distribution.replace("_", "-").replace(".", "-").lower().split("-")))


def plain_domain(domain: str) -> str:
    """The domain as `Operator.domain` spells it: `""` for the standard domain."""
    return "" if domain == STANDARD_DOMAIN else domain


def full_name(domain: str, op_type: str) -> str:
    """`ai.onnx::Conv`: an operator with its domain written out."""
    return f"{domain or STANDARD_DOMAIN}::{op_type}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginRecord:
    """One entry point of one distribution. Never changed: a new state is a new record in the manager.

    `kind` is the tail of the entry-point group, `key` the entry name (device type, file suffix, ONNX domain, name of a
    virtual device, or a free name for hooks), `value` the module it points to. `requires` are the distribution's own
    requirements on dovetail. `location` is the folder that holds the distribution's metadata, or the project folder of an
    editable installation. `duplicates` are other copies of the distribution on `sys.path`, which are not used. `reason` and
    `hint` explain every state but `found` and `loaded`; on `found` they name a rival with the same key. `provides` lists
    devices (`OPENCL.0`) or operators (`tim.vx::HSwish-1`) once loaded, and commands with their help once added.
    Times are in seconds.
    """

    distribution: str
    version: str
    kind: str
    key: str
    value: str
    requires: tuple[str, ...] = ()
    location: str = ""
    editable: bool = False
    duplicates: tuple[str, ...] = ()
    state: State = "found"
    reason: str = ""
    hint: str = ""
    traceback: str = ""
    provides: tuple[str, ...] = ()
    import_seconds: float = 0.0
    register_seconds: float = 0.0

    @property
    def id(self) -> str:
        """`<distribution>/<kind>/<key>`; unique in a manager."""
        return f"{self.distribution}/{self.kind}/{self.key}"

    @property
    def provider(self) -> str:
        """Distribution and version, as reports name the origin of an operator or kernel."""
        return f"{self.distribution} {self.version}".rstrip()

    def answers_to(self, name: str) -> bool:
        """True when `name` is this plugin's id, its distribution or its entry name; letter case does not count."""
        folded = name.strip().casefold()
        return folded in (self.id.casefold(), self.key.casefold()) or normalized(folded) == self.distribution
