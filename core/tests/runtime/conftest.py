"""Fixtures for tests of requests."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.runtime.plan_request import PlanRequest


@pytest.fixture
def staged(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """For each body of a loop that asked: whether its iterations stay in memory."""
    found: list[bool] = []
    layout = PlanRequest.layout

    def noted(self: PlanRequest, *given: Any) -> Any:
        result = layout(self, *given)
        found.append(result is not None)
        return result

    monkeypatch.setattr(PlanRequest, "layout", noted)
    return found


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Ctrl+C raises KeyboardInterrupt, even if these tests run in the background, where shells have it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
