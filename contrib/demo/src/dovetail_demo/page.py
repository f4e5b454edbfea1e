"""The report page of `dovetail demo`: one file, no outside resources, light and dark."""

import platform
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.command import duration, write_file
from dovetail.device import REFERENCE_KERNEL
from dovetail_demo.html import Html, element, join, picture, table, text
from dovetail_demo.measure import LIMIT, DeviceResult, Digits
from dovetail_demo.tables import CUSTOM_COLUMNS, custom_rows, difference_text

__all__ = ["write_page"]

_WHITE = 16


def write_page(path: Path, described: dict[str, Any], results: Sequence[DeviceResult], digits: Digits) -> None:
    """Write the page. `described` is what the command prints as JSON. Raises `OSError`."""
    template = files("dovetail_demo").joinpath("data", "page.html").read_text(encoding="utf-8")
    shown = next((result for result in results if result.probabilities is not None), None)
    parts = {
        "headline": _headline(described),
        "images": described["images"],
        "reference": described["reference"],
        "reference_kernel": REFERENCE_KERNEL,
        "limit": f"{LIMIT:g}",
        "version": described["version"],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cards": _cards(described),
        "results": _results(described),
        "errors": _errors(described),
        "chart": _chart(described),
        "custom": _custom(described),
        "misread": _misread(digits, shown),
        "agreement": _agreement(results),
        "gallery": _gallery(digits, shown),
        "devices": _devices(described),
        "plugins": _plugins(described),
    }
    write_file(path, Template(template).substitute({name: text(part) for name, part in parts.items()}))


def _headline(described: dict[str, Any]) -> str:
    devices = described["devices"]
    if not devices:
        return "No device is available"
    good = sum(d["error"] is None for d in devices)
    noun = "device" if len(devices) == 1 else "devices"
    if good < len(devices):
        return f"{len(devices) - good} of {len(devices)} {noun} failed"
    agree = f"{good} {noun} agree" if good != 1 else "1 device works"
    return f"{agree} on {described['images']} handwritten digits"


def _time(seconds: float) -> str:
    return duration(seconds).replace(" us", " \N{MICRO SIGN}s")


def _cards(described: dict[str, Any]) -> Html:
    measured = [d for d in described["devices"] if d["latency"]]
    if not measured:
        return _card("no result", "no device could run the network")
    best = max(measured, key=lambda d: d["correct"])
    fast = min(measured, key=lambda d: d["latency"]["p50"])
    many = max(measured, key=lambda d: d["images_per_second"])
    others = [d for d in measured if d["device"] != described["reference"]]
    differences = [d["max_difference"] for d in others if d["max_difference"] is not None]
    cards = [
        _card(f"{best['accuracy']:.2%}", f"read right: {best['correct']} of {described['images']}"),
        _card(_time(fast["latency"]["p50"]), f"for one picture on {fast['device']}"),
        _card(f"{many['images_per_second']:,.0f}", f"pictures a second on {many['device']}"),
    ]
    if differences:
        cards.append(_card(f"{max(differences):.1e}", f"largest difference from {described['reference']}"))
    return join(cards)


def _card(figure: str, meaning: str) -> Html:
    return element("div", element("b", figure), element("span", meaning), class_="card")


def _results(described: dict[str, Any]) -> Html:
    columns = ("device", "result", ">right", ">accuracy", ">difference", ">latency p50", ">p90", ">pictures a second")
    return table(columns, [_result(d, described) for d in described["devices"]])


def _result(device: dict[str, Any], described: dict[str, Any]) -> list[object]:
    state = element("span", "failed", class_="bad") if device["error"] else element("span", "agrees", class_="good")
    if not device["latency"]:
        return [device["device"], state, *["-"] * 6]
    return [
        device["device"],
        state,
        f"{device['correct']} of {described['images']}",
        f"{device['accuracy']:.2%}",
        difference_text(device, described["reference"]),
        _time(device["latency"]["p50"]),
        _time(device["latency"]["p90"]),
        f"{device['images_per_second']:,.0f}",
    ]


def _errors(described: dict[str, Any]) -> Html:
    return join(
        [
            element("p", element("span", f"{d['device']} failed: ", class_="bad"), d["error"], class_="error")
            for d in described["devices"]
            if d["error"]
        ]
    )


def _chart(described: dict[str, Any]) -> Html:
    measured = [d for d in described["devices"] if d["latency"]]
    longest = max((d["latency"]["p90"] for d in measured), default=1.0)
    return element("div", *(_bar(d, longest) for d in measured), class_="chart")


def _bar(device: dict[str, Any], longest: float) -> Html:
    p50, p90 = device["latency"]["p50"], device["latency"]["p90"]
    bar = element("div", class_="bar", style=f"width: {p50 / longest:.2%}")
    whisker = element("div", class_="whisker", style=f"left: {p50 / longest:.2%}; width: {(p90 - p50) / longest:.2%}")
    label = f"{device['device']}: median {_time(p50)}, nine of ten within {_time(p90)}"
    track = element("div", bar, whisker, class_="track", role="img", aria_label=label)
    figure = element("div", element("b", _time(p50)), class_="number")
    return element("div", element("div", device["device"]), track, figure, class_="measure")


def _custom(described: dict[str, Any]) -> Html:
    return table(
        CUSTOM_COLUMNS,
        [[_as_code(cell, c) for cell, c in zip(row, CUSTOM_COLUMNS, strict=True)] for row in custom_rows(described)],
    )


def _as_code(cell: str, column: str) -> object:
    return element("code", cell) if column in ("operator", "kernel") else cell


def _misread(digits: Digits, shown: DeviceResult | None) -> Html:
    if shown is None or shown.predictions is None or shown.probabilities is None:
        return element("p", "No device could run the network.")
    wrong = np.flatnonzero(shown.predictions != digits.labels)
    if not wrong.size:
        return element("p", "None: every picture was read right.")
    intro = element("p", f"What {shown.device} took these for, with its three best guesses.", class_="note")
    figures = [_large(digits, int(i), shown.probabilities[i]) for i in wrong]
    return join([intro, element("div", *figures, class_="misread")])


def _large(digits: Digits, index: int, probabilities: NDArray[Any]) -> Html:
    label, read = int(digits.labels[index]), int(probabilities.argmax())
    guesses = [int(i) for i in np.argsort(-probabilities, kind="stable")[:3]]
    odds = [part for guess in guesses for part in _odds(guess, float(probabilities[guess]))]
    caption = element(
        "figcaption", "Is ", element("b", label), ", read as ", element("b", read), element("div", *odds, class_="odds")
    )
    return element("figure", picture(digits.images[index], _WHITE, f"a handwritten {label}, read as {read}"), caption)


def _odds(guess: int, probability: float) -> list[Html]:
    bar = element("div", class_="bar", style=f"width: {probability:.1%}")
    return [element("span", guess), element("div", bar, class_="track"), element("span", f"{probability:.1%}")]


def _gallery(digits: Digits, shown: DeviceResult | None) -> Html:
    read = None if shown is None else shown.predictions
    parts = []
    for digit in np.unique(digits.labels):
        members = np.flatnonzero(digits.labels == digit)
        tiles = [_tile(digits.images[i], int(digit), None if read is None else int(read[i])) for i in members]
        parts += [element("h3", int(digit)), element("div", *tiles, class_="row")]
    return join(parts)


def _tile(image: NDArray[Any], label: int, read: int | None) -> Html:
    what = f"a handwritten {label}" + ("" if read is None else f", read as {read}")
    wrong = "wrong" if read not in (None, label) else None
    return element("figure", picture(image, _WHITE, what), element("figcaption", "-" if read is None else read), class_=wrong)


def _agreement(results: Sequence[DeviceResult]) -> str:
    """Whether the devices read each picture the same."""
    read = [result for result in results if result.predictions is not None]
    if not read:
        return ""
    others = [(r.device, np.count_nonzero(r.predictions != read[0].predictions)) for r in read[1:]]
    differing = [f"{device} reads {count} of them differently" for device, count in others if count]
    if differing:
        return f"This is how {read[0].device} read them; {', '.join(differing)}."
    return "All devices read every picture the same." if others else f"This is how {read[0].device} read them."


def _devices(described: dict[str, Any]) -> Html:
    rows: list[Sequence[object]] = [
        (d["name"], d["kind"], d["full_name"], d["provider"], element("span", "available", class_="good"))
        for d in described["available"]
    ]
    rows += [(m["device"], "-", "-", m["plugin"], _absence(m)) for m in described["missing"]]
    return table(("device", "kind", "hardware", "provided by", "state"), rows)


def _absence(missing: dict[str, Any]) -> Html:
    state = element("span", missing["state"], class_="bad")
    return Html(state + text(": " + ". ".join(filter(None, (missing["reason"], missing["hint"])))))


def _plugins(described: dict[str, Any]) -> Html:
    rows = [
        (element("code", p["distribution"]), p["version"], p["kind"], p["key"], _state(p["state"]), p["reason"])
        for p in described["plugins"]
    ]
    return table(("package", "version", "kind", "for", "state", "reason"), rows)


def _state(state: str) -> Html:
    return element("span", state, class_={"loaded": "good", "found": None}.get(state, "bad"))
