"""Locks and cached properties that threads share, and what a forked process does with them."""

import threading

from dovetail.locks import cached_property


class Slow:
    def __init__(self, begun: threading.Event, go_on: threading.Event) -> None:
        self.begun, self.go_on = begun, go_on

    @cached_property
    def value(self) -> int:
        self.begun.set()
        assert self.go_on.wait(60)
        return 3


def test_a_property_of_one_object_does_not_wait_for_that_of_another() -> None:
    """In Python 3.11 that of `functools` does."""
    begun, go_on, free = threading.Event(), threading.Event(), threading.Event()
    free.set()
    slow, quick = Slow(begun, go_on), Slow(threading.Event(), free)
    thread = threading.Thread(target=lambda: slow.value)
    thread.start()
    assert begun.wait(60)
    other = threading.Thread(target=lambda: quick.value)
    other.start()
    other.join(60)
    assert quick.__dict__ == {**quick.__dict__, "value": 3}
    go_on.set()
    thread.join()
    assert (slow.value, quick.value) == (3, 3)
    assert vars(slow)["value"] == 3, "kept"
