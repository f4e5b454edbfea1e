"""Lanes: requests for several shapes, of which the least recently used are freed."""

from typing import Any

import numpy as np
import pytest

from dovetail.errors import OutOfMemory
from dovetail_virtual_devices.lanes import KEPT, Lane, Lanes


class Request:
    def __init__(self, part: "Part") -> None:
        self.part = part
        self.shape: tuple[int, ...] | None = None

    def forward(self, values: Any) -> Any:
        assert self.shape in (None, values[0].shape), "bound once more"
        if len(self.part.alive) > self.part.room:
            raise OutOfMemory("no room")
        self.shape = values[0].shape
        return [values[0] + 1]

    def close(self) -> None:
        self.part.alive.remove(self)


class Part:
    """A model that has room for so many requests."""

    def __init__(self, room: int = 100) -> None:
        self.alive: list[Request] = []
        self.room = room
        self.made = 0

    def create_infer_request(self) -> Request:
        self.made += 1
        self.alive.append(Request(self))
        return self.alive[-1]


def lane(part: Any, **options: int) -> Lane:
    return Lanes(part, 1, **options).lanes[0]


def test_each_shape_has_a_request_until_there_are_too_many() -> None:
    part = Part()
    one = lane(part)
    for size in (*range(1, KEPT + 1), 1, 3, KEPT):
        np.testing.assert_array_equal(one.run([np.zeros(size)])[0], np.ones(size))
    assert part.made == KEPT
    one.run([np.zeros(KEPT + 1)])
    assert [request.shape for request in part.alive].count((2,)) == 0, "used longest ago"
    assert len(part.alive) == KEPT
    one.close()
    assert part.alive == []


def test_how_many_are_kept_can_be_given() -> None:
    part = Part()
    one = lane(part, kept=2)
    for size in (1, 2, 3, 2, 3):
        one.run([np.zeros(size)])
    assert part.made == 3


def test_memory_of_other_shapes_is_freed_where_it_is_missing() -> None:
    part = Part(room=2)
    one = lane(part)
    for size in (1, 2, 3):
        assert one.run([np.zeros(size)])[0].shape == (size,)
    assert [request.shape for request in part.alive] == [(3,)]
    part.room = 0
    with pytest.raises(OutOfMemory):
        lane(part).run([np.zeros(1)])
