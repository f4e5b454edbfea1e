"""Makers by family; importing this registers them."""

from random_graphs.families import elementwise, moving, networks, quantized, reducing, sequences, windows

__all__ = ["elementwise", "moving", "networks", "quantized", "reducing", "sequences", "windows"]
