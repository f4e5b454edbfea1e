"""Passes: `Graph` in, `Graph` out, each a pure function in a file of its own. None knows a device by name."""
