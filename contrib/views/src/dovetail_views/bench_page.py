"""The page of `dovetail bench --html`: histograms, phases and nodes of each device, as HTML with inline SVG."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.command import duration

__all__ = ["bench_page"]

_COLOURS = ("#2f6db5", "#d97a2b", "#3d9a50", "#a8468d", "#7a6bc4", "#a08a2c")
_BARS = 120
_WIDTH = 480
_NODES = 25
"""Nodes shown for a device: those that take longest."""

_STYLE = """
:root { color-scheme: light dark; --soft: #eef1f5; --line: #8894a3; }
@media (prefers-color-scheme: dark) { :root { --soft: #232a33; } }
body { font: 14px/1.45 system-ui, sans-serif; max-width: 1200px; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; }
section { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
section.wide { grid-template-columns: repeat(auto-fit, minmax(32rem, 1fr)); }
th:first-child, td:first-child { min-width: 6rem; }
section.wide td:first-child { min-width: 13rem; }
article { background: var(--soft); border-radius: 6px; padding: .6rem 1rem 1rem; min-width: 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .15rem .5rem .15rem 0; vertical-align: top; overflow-wrap: anywhere; }
td.number, th.number { text-align: right; white-space: nowrap; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 11px system-ui, sans-serif; fill: currentColor; }
.bar { display: block; height: .7rem; position: relative; background: none; min-width: 8rem; }
.bar i, .bar b { position: absolute; top: 0; height: 100%; left: 0; }
.bar b { width: 2px; background: #d1495b; }
.node { font-size: .85em; opacity: .8; }
"""


def bench_page(described: Mapping[str, Any]) -> str:
    """The page for the JSON of the command."""
    devices = described["devices"]
    title = f"{described['model']} on {', '.join(one['device'] for one in devices) or 'no device'}"
    shortest = min((min(one["samples"]) for one in devices), default=1.0)
    longest = max((float(np.percentile(one["samples"], 99)) for one in devices), default=1.0)
    edges = np.geomspace(shortest, max(longest, 1.1 * shortest), _BARS + 1)
    colours = [_COLOURS[index % len(_COLOURS)] for index in range(len(devices))]
    parts = [
        _section("Steady runs", [_steady(one, colour, edges) for one, colour in zip(devices, colours, strict=True)]),
        _section("Phases", [_phases(one, colour) for one, colour in zip(devices, colours, strict=True)]),
        _section("Nodes that take longest", [_nodes(one, colour) for one, colour in zip(devices, colours, strict=True)], "wide"),
    ]
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
    )
    return f"{head}<body>\n<h1>{escape(title)}</h1>\n{''.join(parts)}</body>\n</html>\n"


def _section(title: str, articles: Sequence[str], kind: str = "") -> str:
    return f'<h2>{title}</h2>\n<section class="{kind}">\n{"".join(articles)}</section>\n'


def _article(device: str, *content: str) -> str:
    return f"<article><h3>{escape(device)}</h3>\n{''.join(content)}</article>\n"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of HTML cells. A column whose title begins with `>` is aligned right."""
    kinds = [' class="number"' if title.startswith(">") else "" for title in columns]
    head = "".join(f"<th{kind}>{escape(title.removeprefix('>'))}</th>" for title, kind in zip(columns, kinds, strict=True))
    lines = ("".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True)) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>\n"


def _steady(one: Mapping[str, Any], colour: str, edges: NDArray[np.float64]) -> str:
    """The histogram, on one logarithmic scale for all devices: those differ, and some runs wait for other programs.

    What is slower than every device's 99th percentile is in the last bar.
    """
    steady, last = one["steady"], float(edges[-1])
    counts, _ = np.histogram(np.clip(one["samples"], edges[0], last), bins=edges)
    tallest = int(counts.max())
    heights = [100 * int(count) / tallest for count in counts]
    step = _WIDTH / _BARS
    bars = "".join(
        f'<rect x="{10 + step * index:g}" y="{110 - height:.1f}" width="{step}" height="{height:.1f}" fill="{colour}">'
        f"<title>{int(count)} runs, {duration(float(start))} to {duration(float(end))}</title></rect>"
        for index, (count, height, start, end) in enumerate(zip(counts, heights, edges, edges[1:], strict=False))
        if count
    )
    marks = "".join(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="6" y2="112" stroke="#d1495b" stroke-dasharray="3 2"/>'
        f'<text x="{x + 2:.1f}" y="{y}">{name}</text>'
        for y, name in zip((14, 26, 38), ("p50", "p90", "p99"), strict=True)
        for x in [_place(min(last, steady[name]), edges)]
    )
    places = ((edges[0], "start"), (edges[_BARS // 2], "middle"), (last, "end"))
    axis = "".join(
        f'<text x="{_place(at, edges):.1f}" y="126" text-anchor="{to}">{duration(float(at))}</text>' for at, to in places
    )
    label = f"histogram of {steady['runs']} runs, logarithmic"
    picture = f'<svg viewBox="0 0 520 130" role="img" aria-label="{label}">{bars}{marks}{axis}</svg>\n'
    rows = [(name, duration(steady[name])) for name in ("p50", "p90", "p99", "mean", "fastest")]
    return _article(one["device"], picture, _table(("", ">time"), [*rows, ("runs", f"{steady['runs']:,}")]))


def _place(seconds: float, edges: NDArray[np.float64]) -> float:
    return 10 + _WIDTH * float(np.log(seconds / edges[0]) / np.log(edges[-1] / edges[0]))


def _phases(one: Mapping[str, Any], colour: str) -> str:
    total = max(one["phases"].values())
    rows = [(escape(name), duration(seconds), _bar(seconds, total, colour)) for name, seconds in one["phases"].items()]
    return _article(one["device"], _table(("phase", ">time", ""), rows))


def _nodes(one: Mapping[str, Any], colour: str) -> str:
    nodes = sorted(one["nodes"], key=lambda node: -node["seconds"])
    if not nodes:
        return _article(one["device"], "<p>The device records no single nodes.</p>")
    total, longest = sum(node["seconds"] for node in nodes), nodes[0]["seconds"]
    rows = [
        (
            f'{escape(node["operator"])} <span class="node">{escape(node["node"])}<br>{escape(node["kernel"])}</span>',
            duration(node["seconds"]),
            f"{node['seconds'] / total:.1%}" if total else "-",
            f"{node['roofline'] / node['seconds']:.0%}" if node["roofline"] is not None and node["seconds"] else "-",
            _bar(node["seconds"], longest, colour, node["roofline"]),
        )
        for node in nodes[:_NODES]
    ]
    peak = one["peak"]
    known = f"<p>Roofline: {peak[0] / 1e9:,.1f} GFLOP/s, {peak[1] / 1e9:,.1f} GB/s, the red line in each bar.</p>" if peak else ""
    more = f"<p>{len(nodes) - _NODES} more nodes are not shown.</p>" if len(nodes) > _NODES else ""
    return _article(one["device"], known, _table(("node", ">time", ">share", ">of roofline", ""), rows), more)


def _bar(value: float, longest: float, colour: str, mark: float | None = None) -> str:
    part = 100 * value / longest if longest else 0
    line = "" if mark is None or not longest else f'<b style="left:{min(100.0, 100 * mark / longest):.2f}%"></b>'
    return f'<span class="bar"><i style="width:{part:.2f}%;background:{colour}"></i>{line}</span>'
