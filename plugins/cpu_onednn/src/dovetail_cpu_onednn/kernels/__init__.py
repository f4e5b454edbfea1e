"""Kernels by operator stem: each module holds `KERNELS`, in the order in which they are tried."""
