"""`dovetail demo`: a small network reads real handwritten digits on every device that is installed."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import dovetail
from dovetail.command import (
    command,
    describe_devices,
    describe_plugin,
    duration,
    print_devices,
    print_json,
    print_plugins,
    print_table,
    print_text,
    progress,
    remark,
)
from dovetail_demo.tables import CUSTOM_COLUMNS, custom_rows, difference_text

if TYPE_CHECKING:
    from dovetail_demo.measure import DeviceResult, Digits

__all__ = ["demo"]

_PAGE = "dovetail-demo.html"


@command("dovetail demo --html digits.html")
@click.option(
    "--html", "page", type=click.Path(dir_okay=False), default=_PAGE, show_default=True, help="Where to write the report page."
)
@click.option("--no-html", is_flag=True, help="Write no report page.")
@click.option("--images", type=click.IntRange(min=1), help="Use only the first so many pictures.")
def demo(page: str, no_html: bool, images: int | None, as_json: bool) -> None:
    """Read handwritten digits on every device.

    A small convolutional network reads 360 pictures that were held back from its training. One of its operators comes from a
    package of its own. The figures, a chart and all pictures also go to a self-contained HTML page. The exit code is 1 when a
    device fails, or when its results differ from the others' by more than 0.0001.

    \b
    JSON: {"version", "images", "reference": device, "page": file or null,
           "devices": [{"device", "error", "correct", "accuracy",
             "max_difference", "training_difference",
             "latency": {"runs", "mean", "p50", "p90", "p99", "fastest"},
             "images_per_second", "wrong": [positions],
             "custom_nodes": [{"node", "operator", "device", "kernel",
                               "provider", "merged_into"}]}],
           "available": [], "missing": [], "plugins": []}
    The differences are the largest of any probability, from the reference
    device and from the training run. Latency is in seconds, for one picture.
    The last three are as in `dovetail devices` and `dovetail plugins list`.
    """
    from dovetail_demo.measure import load_digits, read_demo_model, run_devices
    from dovetail_demo.page import write_page

    core = dovetail.Core()
    devices = core.available_devices
    if not devices:
        remark("No device is available. Devices are packages of their own; `dovetail plugins list` shows what is installed.")
    digits = load_digits(images)
    model = read_demo_model(core)
    with progress(f"{len(digits)} pictures on {len(devices)} devices", len(devices)) as advance:
        results = run_devices(core, model, digits, devices, advance)
    described = _describe(core, results, digits)
    described["page"] = None if no_html else page
    if as_json:
        print_json(described)
    else:
        _print(described, results, digits)
    if not no_html:  # Last, so that a folder that cannot be written to does not take the results along.
        write_page(Path(page), described, results, digits)
        remark(f"The report page is {page}.")
    if any(d["error"] for d in described["devices"]) or _broken(described) or not devices:
        click.get_current_context().exit(1)


def _broken(described: dict[str, Any]) -> bool:
    """True when a device plugin failed; one whose hardware is missing does not count."""
    return any(missing["state"] in ("failed", "incompatible") for missing in described["missing"])


def _describe(core: Any, results: "list[DeviceResult]", digits: "Digits") -> dict[str, Any]:
    from dovetail.runtime import REFERENCE_DEVICE

    described = describe_devices(core)
    return {
        "version": dovetail.__version__,
        "images": len(digits),
        "reference": REFERENCE_DEVICE,
        "devices": [_device(result, digits) for result in results],
        "available": described["devices"],
        "missing": described["missing"],
        "plugins": [describe_plugin(record) for record in core.plugins.records()],
    }


def _device(result: "DeviceResult", digits: "Digits") -> dict[str, Any]:
    read = result.predictions
    wrong = [] if read is None else [int(i) for i in (read != digits.labels).nonzero()[0]]
    return {
        "device": result.device,
        "error": result.error or None,
        "correct": result.correct,
        "accuracy": result.correct / len(digits),
        "max_difference": result.difference,
        "training_difference": result.training_difference,
        "latency": None if result.latency is None else asdict(result.latency),
        "images_per_second": result.images_per_second,
        "wrong": wrong,
        "custom_nodes": [asdict(node) for node in result.custom_nodes],
    }


def _print(described: dict[str, Any], results: "list[DeviceResult]", digits: "Digits") -> None:
    from dovetail_demo.art import show_digits

    print_devices({"devices": described["available"], "missing": described["missing"]})
    print_plugins(described["plugins"])
    ran = [result for result in results if result.probabilities is not None]
    if ran:
        print_text(f"{len(digits)} held-back pictures; some of them, as {ran[0].device} read them:\n")
        print_text(show_digits(digits, ran[0]) + "\n")
    _print_results(described)
    print_table("Operators from outside the standard domain", CUSTOM_COLUMNS, custom_rows(described))
    for device in described["devices"]:
        if device["error"]:
            print_text(f"{device['device']} failed: {device['error']}")


def _print_results(described: dict[str, Any]) -> None:
    reference = described["reference"]
    columns = (
        "device", ">accuracy", f">difference\nfrom {reference}", ">latency\np50", ">latency\np90", ">pictures\na second",
    )  # fmt: skip
    rows = [
        (
            d["device"],
            f"{d['accuracy']:.2%}",
            difference_text(d, reference),
            duration(d["latency"]["p50"]),
            duration(d["latency"]["p90"]),
            f"{d['images_per_second']:,.0f}",
        )
        if d["latency"]
        else (d["device"], *["failed"] * 5)
        for d in described["devices"]
    ]
    print_table(f"Results (latency for one picture, throughput for {described['images']} at once)", columns, rows)
