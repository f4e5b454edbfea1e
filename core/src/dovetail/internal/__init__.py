"""The core's own operators: reorder, copy, convert, single post-ops, opaque nodes."""
