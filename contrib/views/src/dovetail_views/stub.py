"""Estimate the gain of faster kernels: its time when the kernels of some operators do nothing."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from dovetail.command import Latency, duration, print_table, print_text
from dovetail.errors import InferError, did_you_mean

if TYPE_CHECKING:
    from dovetail.runtime import CompiledModel

__all__ = ["CAVEAT", "STUB", "estimates", "print_estimates", "variants"]

STUB = "stub"
"""The name in reports of a kernel that does nothing."""
CAVEAT = "This holds only if the results of these operators steer nothing: no branch, no loop, no index."

Call = Callable[[], Any]


def variants(types: Sequence[str]) -> list[tuple[str, ...]]:
    """Each operator type alone, then all together when there are several."""
    single: list[tuple[str, ...]] = [(one,) for one in dict.fromkeys(types)]
    return [*single, tuple(dict.fromkeys(types))] if len(single) > 1 else single


def estimates(
    plain: "CompiledModel",
    stubbed: Mapping[tuple[str, ...], "CompiledModel"],
    inputs: Any,
    runs: int | None,
    seconds: float | None,
) -> list[dict[str, Any]]:
    """For each variant the time of a run with and without it, all measured in turns so that a busy machine slows all alike.

    Raises `click.UsageError` for a type that no node has, and for one whose nodes the device cannot leave out.
    """
    for types, compiled in stubbed.items():
        _check(types, plain, compiled)
    samples = _in_turns([lambda: plain(inputs), *(_steered(c, inputs) for c in stubbed.values())], runs, seconds)
    base, *others = (Latency.of(taken) for taken in samples)
    return [
        {
            "types": list(types),
            "nodes": sum(_is_of(node.op, types) for node in plain.report().nodes),
            "with": asdict(base),
            "without": asdict(latency),
            "speedup": base.p50 / latency.p50,
        }
        for types, latency in zip(stubbed, others, strict=True)
    ]


def print_estimates(found: Sequence[Mapping[str, Any]]) -> None:
    """A row for each variant, and what it is worth."""
    rows = [
        (
            ", ".join(one["types"]),
            str(one["nodes"]),
            duration(one["with"]["p50"]),
            duration(one["without"]["p50"]),
            duration(max(0.0, one["with"]["p50"] - one["without"]["p50"])),
            f"{one['speedup']:.2f}x",
        )
        for one in found
    ]
    columns = ("kernels of", ">nodes", ">p50 now", ">p50 without", ">they take", ">at most")
    print_table("If these kernels took no time", columns, rows)
    print_text(f"A perfect kernel, with all that is merged into it, makes a run at most so much faster. {CAVEAT}")


def _is_of(op: str, types: Sequence[str]) -> bool:
    return op in types or op.rpartition("::")[2] in types


def _check(types: Sequence[str], plain: "CompiledModel", compiled: "CompiledModel") -> None:
    nodes = plain.report().nodes
    for one in types:
        if not any(_is_of(node.op, [one]) for node in nodes):
            there = {node.op for node in nodes}
            raise click.UsageError(f"No node of type {one!r} runs. {did_you_mean(one, there)}")
    for node in compiled.report().nodes:
        if _is_of(node.op, types) and node.kernel != STUB:
            message = f"Node {node.name!r} ({node.op}) runs on {node.device}: --stub leaves out kernels of the device of -d."
            raise click.UsageError(message)


def _steered(compiled: "CompiledModel", inputs: Any) -> Call:
    def call() -> Any:
        try:
            return compiled(inputs)
        except InferError as error:
            error.hint = f"No estimate by a stub is possible here. {CAVEAT}"
            raise

    return call


def _in_turns(calls: Sequence[Call], runs: int | None, seconds: float | None) -> list[list[float]]:
    """The duration of each call of each, one after the other; the first round is not counted."""
    for call in calls:
        call()
    samples: list[list[float]] = [[] for _ in calls]
    begin = time.perf_counter()
    while True:
        for call, taken in zip(calls, samples, strict=True):
            start = time.perf_counter()
            call()
            taken.append(time.perf_counter() - start)
        done = runs is not None and len(samples[0]) >= runs
        if done or (seconds is not None and time.perf_counter() - begin >= seconds):
            return samples
