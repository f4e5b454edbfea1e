"""The commands of this package. A name such as `run --trace` is an option that it adds to another command."""

import click

from dovetail_views.bench import bench
from dovetail_views.bench_html import bench_html
from dovetail_views.compare import compare
from dovetail_views.compare_bisect import compare_bisect
from dovetail_views.dump_kernel import dump_kernel
from dovetail_views.explain import explain
from dovetail_views.graph import graph
from dovetail_views.info import info
from dovetail_views.traced import traced

__all__ = ["COMMANDS"]

COMMANDS: tuple[click.Command, ...] = (
    bench, compare, explain, graph, info, bench_html, compare_bisect, dump_kernel, traced("bench"), traced("run"),
)  # fmt: skip
