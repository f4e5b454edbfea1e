"""`dovetail plugins which`: the definitions of an operator, the one that is used, and the rule that says so."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import (
    DEFAULT_DEVICE,
    command,
    complete_devices,
    complete_operators,
    config_file_option,
    make_core,
    print_table,
    print_text,
    show,
)
from dovetail.errors import PluginConflict, PluginError, UnknownOperator
from dovetail.plugins import STANDARD_DOMAIN, plain_domain
from dovetail_tools.kernel_files import device_packages

if TYPE_CHECKING:
    from dovetail.plugins import PluginManager, PluginRecord
    from dovetail.plugins.rules import Candidate, SuitabilityOf
    from dovetail.runtime import Core

__all__ = ["which"]


@command("dovetail plugins which com.acme::Twist --device NPU --dtype float32", name="which")
@click.argument("operator", metavar="DOMAIN::OP", shell_complete=complete_operators)
@click.option(
    "--device",
    metavar="DEVICE",
    shell_complete=complete_devices,
    help="A device type: rule 2 (kernel, composition, reference) is for a device.",
)
@click.option("--dtype", metavar="TYPE", help="The data type of the first input: a kernel may be for some only.")
@click.option(
    "--opset", type=click.IntRange(min=1), metavar="N", help="The operator set version of the domain. [default: newest]"
)
@config_file_option
def which(
    operator: str, device: str | None, dtype: str | None, opset: int | None, config_files: tuple[str, ...], as_json: bool
) -> None:
    """List all definitions of an operator, and say which one is used.

    Nothing is run. DOMAIN::OP is for example com.acme::Twist; standard operators need no domain. Without --device nothing is
    known of kernels, and rule 2 is left out. A plan asks the device itself, which may refuse a shape or an attribute: then the
    next definition has its turn. The exit code is 1 when it is not decided.

    Custom layers come before all definitions on their device. They are looked for, and the device is opened, when -c names any or
    the configuration of the device has CONFIG_FILE.

    \b
    JSON: {"operator", "device", "dtype", "opset", "winner", "rule",
           "reason", "hint", "custom_kernel": device or null,
           "candidates": [{"plugin", "provider", "since", "until", "becomes",
           "runs_by", "dtypes": [] or null, "owner", "priority",
           "lost_by_rule", "choose"}],
           "idle": [{"plugin", "state", "defines", "reason", "hint"}]}
    "becomes" is the operator or the function for which another name
    stands, else null. "idle" packs are installed and not in use; "defines"
    is null when the pack has no manifest. What is not asked for
    is null. With a custom kernel the winner is the plugin of the device that
    has it.
    """
    core = make_core()
    domain, op_type = _parsed(operator)
    kind = None if device is None else core.plugins.device_type(device)
    custom = _custom(core, domain, op_type, device, config_files)
    described = {
        "operator": f"{domain}::{op_type}" if domain else op_type,
        "device": custom.partition(".")[0] or kind,
        "dtype": _dtype(dtype),
        "opset": opset,
        "custom_kernel": custom or None,
    }
    described |= _decided(core.plugins, domain, op_type, described)
    show(described, as_json, _print)
    if not described["winner"]:
        click.get_current_context().exit(1)


def _parsed(operator: str) -> tuple[str, str]:
    from dovetail.plugins import parsed_operator

    if (key := parsed_operator(operator)) is None:
        raise click.UsageError(f"{operator!r} is not of the form DOMAIN::OP.")
    return key


def _custom(core: "Core", domain: str, op_type: str, device: str | None, files: Sequence[str]) -> str:
    """The device that has a kernel of the user's for the operator; empty for none."""
    configured = core.plugins.config.devices.get((device or "").upper().partition(".")[0], {})
    if not files and "CONFIG_FILE" not in configured:
        return ""
    return core.prescribed_by(device or DEFAULT_DEVICE, domain, op_type, {"CONFIG_FILE": list(files)} if files else {})


def _dtype(dtype: str | None) -> str | None:
    from dovetail.graph import DType

    return None if dtype is None else DType.of(dtype).value


def _decided(manager: "PluginManager", domain: str, op_type: str, asked: dict[str, Any]) -> dict[str, Any]:
    from dovetail.plugins.rules import NEWEST, PREFERRED, RULES, Suitability

    version = asked["opset"] or NEWEST
    candidates = _candidates(manager, domain, op_type, version, defined=not asked["custom_kernel"])
    suitability_of = _suitability_of(manager, asked["device"], asked["dtype"])
    lost: dict[str, int] = {}
    answer: dict[str, Any] = {"winner": "", "rule": 0}
    try:
        decision = None if asked["custom_kernel"] else manager.decide(domain, op_type, version, suitability_of)
    except PluginConflict as error:
        answer |= {"reason": error.message, "hint": error.hint}
        decision = None
    if asked["custom_kernel"]:
        owner = manager.owner("devices", asked["device"].lower())
        lost = dict.fromkeys((c.plugin for c in candidates), PREFERRED)
        answer |= {"winner": owner.id, "rule": PREFERRED, "reason": RULES[PREFERRED], "hint": ""}
    elif decision is not None:
        candidates, lost = decision.candidates, dict(decision.lost)
        reason = RULES.get(decision.rule, "it is the only definition")
        answer |= {"winner": decision.winner.plugin, "rule": decision.rule, "reason": reason, "hint": ""}
    suits = [Suitability() if suitability_of is None else suitability_of(c) for c in candidates]
    answer["candidates"] = [_candidate(c, s, lost.get(c.plugin)) for c, s in zip(candidates, suits, strict=True)]
    answer["idle"] = [
        {"plugin": r.id, "state": r.state, "defines": defines, "reason": r.reason, "hint": r.hint}
        for r, defines in _idle_packs(manager, domain, op_type)
        if defines is not False
    ]
    return answer


def _idle_packs(manager: "PluginManager", domain: str, op_type: str) -> Iterator[tuple["PluginRecord", bool | None]]:
    """The packs of a domain that are not in use, and whether they define an operator, by their manifest; None: not known."""
    from dovetail.plugins import PACKS, read_manifest

    for record in manager.records():
        if record.kind in PACKS and plain_domain(record.key) == domain and record.state not in ("found", "loaded"):
            try:
                listed = read_manifest(record)
            except PluginError:
                listed = None
            name = f"{domain}::{op_type}-" if domain else f"{op_type}-"
            yield record, None if listed is None else any(operator.startswith(name) for operator in listed)


def _candidates(manager: "PluginManager", domain: str, op_type: str, version: int, *, defined: bool) -> "Sequence[Candidate]":
    """The definitions; none need be there unless `defined`."""
    try:
        return manager.candidates(domain, op_type, version)
    except UnknownOperator:
        if defined:
            raise
        return ()


def _suitability_of(manager: "PluginManager", device: str | None, dtype: str | None) -> "SuitabilityOf | None":
    """How classes say that they run; the device's own kernels for standard operators are seen from their files."""
    if device is None:
        return None
    from dovetail.plugins.rules import KERNEL, Suitability, claim, languages

    packages = [package for package in device_packages(manager.records()) if package.device == device]
    stems = {operator.stem for operator in manager.operators(STANDARD_DOMAIN)}

    def suitability_of(candidate: "Candidate") -> "Suitability":
        # Kernel files carry the stems of the standard's operators, as the pack that owns that domain defines them.
        standard = candidate.owner and not candidate.operator.domain
        if standard and any(package.kernels(candidate.operator.stem, stems) for package in packages):
            return Suitability((KERNEL,))
        return claim(candidate.operator, languages(device), dtype or "")

    return suitability_of


def _candidate(candidate: "Candidate", suits: Any, lost_by: int | None) -> dict[str, Any]:
    from dovetail.op import translation_target
    from dovetail.plugins.rules import GRADES, pin_lines

    return {
        "plugin": candidate.plugin,
        "provider": candidate.provider,
        "since": candidate.operator.since,
        "until": candidate.until,
        "becomes": translation_target(candidate.operator) if candidate.asked else None,
        "runs_by": GRADES[suits.grades[0]] if suits.grades else None,
        "dtypes": None if suits.dtypes is None else sorted(suits.dtypes),
        "owner": candidate.owner,
        "priority": candidate.priority,
        "lost_by_rule": lost_by,
        "choose": next(iter(pin_lines(candidate.operator, [candidate])), ""),
    }


def _print(answer: dict[str, Any]) -> None:
    asked = ", ".join(str(answer[word]) for word in ("device", "dtype") if answer[word])
    version = f", version {answer['opset']}" if answer["opset"] else ""
    title = f"{answer['operator']}{version}{f' on {asked}' if asked else ''}"
    rows = [
        (
            "used" if c["plugin"] == answer["winner"] else f"lost by rule {c['lost_by_rule']}" if c["lost_by_rule"] else "",
            c["provider"] + (f": {c['becomes']}" if c["becomes"] else ""),
            f"{c['since']}..{'' if c['until'] is None else c['until']}",
            " for ".join(filter(None, (c["runs_by"], ", ".join(c["dtypes"] or ())))) or "-",
            "owner" if c["owner"] else "",
            str(c["priority"]),
        )
        for c in answer["candidates"]
    ]
    if answer["custom_kernel"]:
        rows.insert(0, ("used", f"custom layer of {answer['custom_kernel']}", "", "kernel", "", ""))
    print_table(title, ("", "definition", "versions", "runs by", "domain", ">priority"), rows)
    if answer["idle"]:
        idle = [(i["plugin"], i["state"], _DEFINES[i["defines"]], i["reason"], i["hint"]) for i in answer["idle"]]
        print_table("Not in use", ("plugin", "state", "defines it", "why", "to use it"), idle)
    print_text(
        f"Rule {answer['rule']}: {answer['reason']}."
        if answer["rule"]
        else f"{answer['reason'][:1].upper()}{answer['reason'][1:]}."
    )
    others = [c["choose"] for c in answer["candidates"] if c["plugin"] != answer["winner"] and c["choose"]]
    if answer["custom_kernel"]:
        print_text("To choose another, leave the custom layer out.")
    elif others:
        print_text(f"To choose {'another' if answer['winner'] else 'one'}, set {' or '.join(others)},")
        print_text(f"or write in dovetail.yaml: prefer: {{{others[0].removeprefix('DOVETAIL_PREFER=').replace('=', ': ')}}}")


_DEFINES = {True: "yes", None: "not known: it has no manifest"}
