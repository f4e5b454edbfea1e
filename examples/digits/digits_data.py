"""The images of the digits example and the one split of them; needs NumPy and scikit-learn, never torch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

CLASSES = 10
HELD_BACK_PER_CLASS = 36
SPLIT_SEED = 20
WHITE = 16  # the largest pixel value of the data set; the network's input is pixel / WHITE

# One copy in the repository: `dovetail demo` must find both files in an installed wheel, so they are its package data.
DEMO_DATA = Path(__file__).resolve().parents[2] / "contrib" / "demo" / "src" / "dovetail_demo" / "data"
MODEL_FILE = DEMO_DATA / "digits.onnx"
HELD_BACK_FILE = DEMO_DATA / "digits_test.npz"


@dataclass(frozen=True)
class Digits:
    """Labelled pictures: `images` uint8 [M, 8, 8] with values 0..16, `labels` uint8 [M] with values 0..9."""

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]

    def take(self, index: NDArray[np.intp]) -> "Digits":
        """The pictures at `index`, in that order."""
        return Digits(self.images[index], self.labels[index])


def load() -> Digits:
    """All 1,797 pictures in the order of scikit-learn's `load_digits`."""
    bunch = load_digits()
    return Digits(bunch.images.astype(np.uint8), bunch.target.astype(np.uint8))


def split(digits: Digits) -> tuple[Digits, Digits]:
    """(training set, held-back set): 36 pictures of each digit are held back, drawn with a fixed seed.

    Both parts keep the order of `digits`, so the held-back set is not sorted by digit.
    """
    # RandomState, not Generator: NumPy promises never to change its stream, so the split cannot move with a release.
    rng = np.random.RandomState(SPLIT_SEED)
    held_back = np.zeros(len(digits.labels), dtype=np.bool_)
    for digit in range(CLASSES):
        held_back[rng.permutation(np.flatnonzero(digits.labels == digit))[:HELD_BACK_PER_CLASS]] = True
    return digits.take(np.flatnonzero(~held_back)), digits.take(np.flatnonzero(held_back))


def as_input(images: NDArray[np.uint8]) -> NDArray[np.float32]:
    """`images` [M, 8, 8] as the network's input "image": float32 [M, 1, 8, 8], scaled to 0..1."""
    return images[:, np.newaxis].astype(np.float32) / np.float32(WHITE)
