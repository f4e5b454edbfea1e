"""The kernels, one file for each operator's stem: `KERNELS`, ordered, the first that accepts a node runs it."""
