"""Graphs as PyTorch's models become: indices of any type, sizes that are open or computed; see `_operations.py`."""

import runpy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from openvino import opset1, opset3, opset5, opset7, opset8, opset9, opset11, opset12, opset13, opset14, opset15

_GRAPHS = runpy.run_path(str(Path(__file__).with_name("_graphs.py")))
Operation, f, i, c, RNG = (_GRAPHS[name] for name in ("Operation", "f", "i", "c", "RNG"))


def _types_of_indices() -> Iterable[Any]:
    for dtype in (np.uint8, np.uint32, np.uint64, np.int16):
        name, whole = dtype.__name__, i(2, 3, low=0, high=5, dtype=dtype)
        yield Operation(f"gather {name}", lambda x, n: opset8.gather(x, n, c(1), 0), (f(2, 5, 3), whole))
        order = np.stack([RNG.permutation(5)[:3] for _ in range(2)]).astype(dtype)
        scatter = (f(2, 5), order, f(2, 3))
        yield Operation(f"scatter {name}", lambda x, n, u: opset3.scatter_elements_update(x, n, u, c(1)), scatter)


def _first_values() -> Iterable[Any]:
    indices = c([[0, 3, 0], [4, 4, 4]])
    for reduction in ("sum", "prod", "min", "max"):
        yield Operation(
            f"scatter without {reduction}",
            lambda x, u, r=reduction: opset12.scatter_elements_update(x, indices, u, c(1), r, False),
            (f(2, 5), f(2, 3)),
        )
        yield Operation(
            f"scatter integers without {reduction}",
            lambda x, u, r=reduction: opset12.scatter_elements_update(x, indices, u, c(1), r, False),
            (i(2, 5), i(2, 3)),
        )


def _scattered_means() -> Iterable[Any]:
    """OpenVINO's CPU rounds the mean of integers towards zero, its reference down: these are not below zero."""
    indices = c([[0, 3, 0], [4, 4, 4]])
    for own in (True, False):
        for name, make in (("floats", f), ("integers", lambda *dims: i(*dims, low=0, high=20))):
            yield Operation(
                f"scatter mean of {name} {own}",
                lambda x, u, own=own: opset12.scatter_elements_update(x, indices, u, c(1), "mean", own),
                (make(2, 5), make(2, 3)),
            )


def _open_sizes() -> Iterable[Any]:
    x = f(2, 3, 7, 10)
    for sizes in ([3, 4], [1, 10], [7, 1], [9, 13]):
        for is_open in (False, True):
            name = f"{sizes} {'open' if is_open else ''}".strip()
            yield Operation(f"adaptive average {name}", lambda x, s=sizes: opset8.adaptive_avg_pool(x, c(s)), (x,), open=is_open)
            yield Operation(
                f"adaptive max {name}",
                lambda x, s=sizes: [opset8.adaptive_max_pool(x, c(s), "i32").output(0)],
                (x,),
                open=is_open,
            )
    yield Operation("roll open", lambda x: opset7.roll(x, c([2, -13, 0]), c([1, 3, 2])), (x,), open=True)
    yield Operation("roll none open", lambda x: opset7.roll(x, c([2]), c([1])), (f(3, 0),), open=True)
    window = ([2, 2], [1, 1], [0, 1], [1, 1], [3, 3])
    yield Operation(
        "max pool indices open", lambda x: opset14.max_pool(x, *window, "floor", "explicit", "i64", axis=2), (x,), open=True
    )
    signal = f(3, 6, 5, 2)
    for name in ("dft", "idft"):
        yield Operation(
            f"{name} computed sizes",
            lambda x, n, name=name: getattr(opset7, name)(x, c([1, 0]), opset13.add(n, c([0, 1]))),
            (signal, np.int64([6, 2])),
        )
    sizes = lambda x, *add: opset13.add(opset8.gather(opset3.shape_of(x), c([0, 1]), c(0)), c(add))  # noqa: E731
    yield Operation("rdft computed sizes", lambda x: opset9.rdft(x, c([0, 1]), sizes(x, -1, -1)), (f(3, 6),))
    yield Operation("irdft computed sizes", lambda x: opset9.irdft(x, c([0, 1]), sizes(x, 0, 3)), (f(3, 4, 2),))


def _rounded_integers() -> Iterable[Any]:
    for name, build in {
        "floor": opset1.floor,
        "ceiling": opset1.ceiling,
        "round": lambda x: opset5.round(x, "half_away_from_zero"),
    }.items():
        yield Operation(f"{name} of integers", lambda x, build=build: opset1.add(build(x), c(1, np.int32)), (i(3, 5),))


def _means() -> Iterable[Any]:
    table, ids = f(7, 3, 2), i(6, low=0, high=7)
    offsets = c([0, 2, 2, 5], np.int32)
    yield Operation(
        "packed mean", lambda t, n: opset15.embedding_bag_packed(t, n, reduction="mean"), (table, i(4, 3, low=0, high=7))
    )
    yield Operation(
        "offsets mean",
        lambda t, n: opset15.embedding_bag_offsets(t, n, offsets, reduction="mean"),
        (f(7, 2), ids),
    )
    yield Operation(
        "offsets mean default",
        lambda t, n: opset15.embedding_bag_offsets(t, n, offsets, c(4, np.int32), reduction="mean"),
        (f(7, 2), ids),
    )


def _pillow() -> Iterable[Any]:
    for coefficient in (-0.75, -0.5, -0.2):
        yield Operation(
            f"bicubic pillow {coefficient}",
            lambda x, k=coefficient: opset11.interpolate(
                x, c([5, 4]), "bicubic_pillow", "sizes", axes=c([2, 3]), cube_coeff=k, pads_begin=[0] * 4, pads_end=[0] * 4
            ),
            (f(1, 2, 9, 8),),
        )


FAMILIES = (_types_of_indices, _first_values, _scattered_means, _open_sizes, _rounded_integers, _means, _pillow)
