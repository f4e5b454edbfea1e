"""The table of graph passes for `dovetail explain --passes`."""

from typing import TYPE_CHECKING, Any

from dovetail.command import count, duration, print_table

if TYPE_CHECKING:
    from dovetail.runtime import PlanReport

__all__ = ["describe_passes", "print_passes"]


def describe_passes(report: "PlanReport") -> list[dict[str, Any]]:
    """The passes of a plan as data, in the order in which they first ran."""
    return [
        {
            "pass": one.name,
            "stage": one.stage,
            "origin": one.origin or None,
            "before": one.before,
            "after": one.after,
            "changed": one.changed,
            "seconds": one.seconds,
        }
        for one in report.passes
    ]


def print_passes(described: dict[str, Any]) -> None:
    """One row a pass. Passes of the core have no origin."""
    rows = [
        (one["stage"], one["pass"], count(one["before"]), count(one["after"]), duration(one["seconds"]), one["origin"] or "core")
        for one in described["passes"]
    ]
    title = f"{described['model']} on {described['device']}: {len(rows)} passes"
    print_table(title, ("stage", "pass", ">nodes before", ">after", ">time", "from"), rows)
