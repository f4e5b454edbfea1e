"""How each layer type becomes nodes: one function a type, found by its name in `LAYERS`."""

from collections.abc import Callable

from dovetail_frontend_pzkm.layers import elementwise, movement, normal, windows
from dovetail_frontend_pzkm.scope import Scope

__all__ = ["LAYERS"]

LAYERS: dict[str, Callable[[Scope], None]] = {
    **elementwise.LAYERS,
    **movement.LAYERS,
    **normal.LAYERS,
    **windows.LAYERS,
}
