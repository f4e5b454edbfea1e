"""The commands of this package. A name such as `run --trace` is an option that it adds to a built-in command."""

import click

from dovetail_views.bench_html import bench_html
from dovetail_views.compare_bisect import compare_bisect
from dovetail_views.graph import graph
from dovetail_views.traced import traced

__all__ = ["COMMANDS"]

COMMANDS: tuple[click.Command, ...] = (graph, compare_bisect, bench_html, traced("run"), traced("bench"))
