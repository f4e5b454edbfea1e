"""Running nodes in NumPy: references, compositions, post-ops, and type inference."""
