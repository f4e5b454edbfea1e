"""Cases of BidirectionalSequenceLstm: the data and golden numbers of TIM-VX's bidirectional_sequence_lstm_test.cc."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_tim_vx.bidirectional_sequence_lstm import BidirectionalSequenceLstm

Array = NDArray[Any]

# Batch 1, 3 steps, 2 features, 4 cells; both directions have the same weights.
WAY = {
    "W_i": [[-0.45018822, -0.02338299], [-0.0870589, -0.34550029], [0.04266912, -0.15680569], [-0.34856534, 0.43890524]],
    "W_f": [[0.09701663, 0.20334584], [-0.50592935, -0.31343272], [-0.40032279, 0.44781327], [0.01387155, -0.35593212]],
    "W_c": [[-0.50013041, 0.1370284], [0.11810488, 0.2013163], [-0.20583314, 0.44344562], [0.22077113, -0.29909778]],
    "W_o": [[-0.25065863, -0.28290087], [0.04613829, 0.40525138], [0.44272184, 0.03897077], [-0.1556896, 0.19487578]],
    "R_i": [
        [-0.0063535, -0.2042388, 0.31454784, -0.35746509],
        [0.28902304, 0.08183324, -0.16555229, 0.02286911],
        [-0.13566875, 0.03034258, 0.48091322, -0.12528998],
        [0.24077177, -0.51332325, -0.33502164, 0.10629296],
    ],
    "R_f": [
        [-0.48684245, -0.06655136, 0.42224967, 0.2112639],
        [0.27654213, 0.20864892, -0.07646349, 0.45877004],
        [0.00141793, -0.14609534, 0.36447752, 0.09196436],
        [0.28053468, 0.01560611, -0.20127171, -0.01140004],
    ],
    "R_c": [
        [-0.3407414, 0.24443203, -0.2078532, 0.26320225],
        [0.05695659, -0.00123841, -0.4744786, -0.35869038],
        [-0.06418842, -0.13502428, -0.501764, 0.22830659],
        [-0.46367589, 0.26016325, -0.03894562, -0.16368064],
    ],
    "R_o": [
        [0.43385774, -0.17194885, 0.2718237, 0.09215671],
        [0.24107647, -0.39835793, 0.18212086, 0.01301402],
        [0.48572797, -0.50656658, 0.20047462, -0.20607421],
        [-0.51818722, -0.15390486, 0.0468148, 0.39922136],
    ],
    "b_i": [0.0] * 4,
    "b_f": [1.0] * 4,
    "b_c": [0.0] * 4,
    "b_o": [0.0] * 4,
}
X = np.array([[[2, 3], [3, 4], [1, 1]]], np.float32)
FORWARD = [
    [-0.02973187, 0.1229473, 0.20885126, -0.15358765],
    [-0.03716109, 0.12507336, 0.41193449, -0.20860538],
    [-0.15053082, 0.09120187, 0.24278517, -0.12222792],
]
BACKWARD = [
    [-0.0806187, 0.139077, 0.400476, -0.197842],
    [-0.0332076, 0.123838, 0.309777, -0.17621],
    [-0.0490733, 0.0739237, 0.067706, -0.0208124],
]

PORTS = [port.name for port in BidirectionalSequenceLstm.inputs]


def arranged(named: Mapping[str, Array]) -> tuple[Array | None, ...]:
    """All inputs by name, None for those left out."""
    return tuple(named.get(name) for name in PORTS)


def both(way: Mapping[str, Any]) -> dict[str, Array]:
    """The same inputs for both directions."""
    return {f"{d}_{name}": np.asarray(value, np.float32) for d in ("fw", "bw") for name, value in way.items()}


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """The golden numbers batch and time first, the last output alone, part of the forget bias as an attribute, batch 0."""
    fw, bw = (np.array([rows], np.float32) for rows in (FORWARD, BACKWARD))
    named = {"X": X, **both(WAY)}
    weights = tuple(i for i, name in enumerate(PORTS) if name in named and name != "X")
    last = BidirectionalSequenceLstm()
    yield Case("last_output", last, arranged(named), (fw[:, -1], fw[:, -1]), atol=1e-5)
    whole = BidirectionalSequenceLstm(return_sequences=True)
    yield Case("golden", whole, arranged(named), (fw, fw[:, -1]), atol=1e-5, constants=weights)
    biased = BidirectionalSequenceLstm(time_major=True, return_sequences=True, forget_bias=0.75)
    parted = {"X": X.swapaxes(0, 1), **both({**WAY, "b_f": [0.25] * 4})}
    yield Case("forget_bias", biased, arranged(parted), (fw.swapaxes(0, 1), fw[:, -1]), atol=1e-5)
    backward = {"X": X[:, ::-1], **both(WAY)}
    yield Case("backward", whole, arranged(backward), (bw[:, ::-1], bw[:, 0]), atol=1e-5)
    yield Case("batch_0", whole, arranged({**named, "X": X[:0]}), (fw[:0], fw[:0, -1]))
