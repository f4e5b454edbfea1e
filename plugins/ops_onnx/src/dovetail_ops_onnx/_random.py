"""Random numbers for the operators that draw some."""

import numpy as np


def generator(seed: float | None) -> np.random.Generator:
    """A generator from a seed, the same at every run, or from the system's entropy without one."""
    return np.random.default_rng(None if seed is None else int(np.float32(seed).view(np.uint32)))
