"""The core's own operators: reorder, copy, single post-ops, opaque nodes."""
