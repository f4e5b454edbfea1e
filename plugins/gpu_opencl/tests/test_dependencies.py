"""Which steps wait for which."""

import numpy as np

from dovetail_gpu_opencl.dependencies import Span, Step, dependencies


def span(start: int, end: int, buffer: str = "arena") -> Span:
    return Span(buffer, start, end)


def test_a_reader_waits_for_its_producers_only() -> None:
    write_a, write_b = Step(writes=(span(0, 4),)), Step(writes=(span(4, 8),))
    assert dependencies([write_a, write_b, Step(reads=(span(4, 8),), writes=(span(8, 9),))]) == ((), (), (1,))


def test_a_writer_waits_for_the_readers_of_what_it_overwrites() -> None:
    steps = [
        Step(writes=(span(0, 4),)),
        Step(reads=(span(0, 4),), writes=(span(4, 8),)),
        Step(reads=(span(0, 4),), writes=(span(8, 12),)),
        Step(writes=(span(2, 3),)),
    ]
    assert dependencies(steps) == ((), (0,), (0,), (1, 2))


def test_a_writer_waits_for_the_writer_before_it() -> None:
    assert dependencies([Step(writes=(span(0, 4),)), Step(writes=(span(3, 9),))]) == ((), (0,))


def test_in_place_and_transitive_waits() -> None:
    steps = [
        Step(writes=(span(0, 4),)),
        Step(reads=(span(0, 4),), writes=(span(0, 4),)),
        Step(reads=(span(0, 4),), writes=(span(8, 9),)),
    ]
    assert dependencies(steps) == ((), (0,), (1,))


def test_other_buffers_do_not_matter() -> None:
    assert dependencies([Step(writes=(span(0, 4),)), Step(reads=(span(0, 4, "b"),), writes=(span(0, 4, "c"),))]) == ((), ())


def test_any_order_that_keeps_the_waits_gives_the_same_memory() -> None:
    """Random steps on eight cells, run in random orders that respect the waits."""
    rng = np.random.default_rng(3)
    for _ in range(50):
        steps = []
        for _ in range(12):
            cells = [sorted(rng.choice(9, 2, replace=False)) for _ in range(3)]
            (a, b), (c, d), (e, f) = cells
            steps.append(Step((span(a, b), span(c, d)), (span(e, f),)))
        waits = dependencies(steps)
        expected = run(steps, range(len(steps)))
        for _ in range(5):
            done: list[int] = []
            while len(done) < len(steps):
                ready = [i for i in range(len(steps)) if i not in done and set(waits[i]) <= set(done)]
                done.append(int(rng.choice(ready)))
            np.testing.assert_array_equal(run(steps, done), expected)


def run(steps: list[Step], order: object) -> "np.ndarray[tuple[int, ...], np.dtype[np.float64]]":
    """Each step adds up what it reads and writes a number made from that and its index."""
    memory = np.arange(9.0)
    for index in order:
        total = sum(memory[s.start : s.end].sum() for s in steps[index].reads)
        for s in steps[index].writes:
            memory[s.start : s.end] = np.sin(total + index + np.arange(s.end - s.start))
    return memory
