"""Work on large requests, on threads: the event loop answers others meanwhile."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["offloaded"]

P = ParamSpec("P")
R = TypeVar("R")

_LARGE = 256 * 1024
"""Bytes whose conversion takes longer than handing it to a thread."""


async def offloaded(size: int, function: Callable[P, R], /, *arguments: P.args, **options: P.kwargs) -> R:
    """The result of the function, which is called on a thread when its arguments have so many bytes that this pays."""
    if size < _LARGE:
        return function(*arguments, **options)
    return await asyncio.to_thread(function, *arguments, **options)
