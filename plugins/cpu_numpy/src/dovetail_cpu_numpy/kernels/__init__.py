"""The kernels: `<stem>.py` holds `KERNELS`, of which the first that accepts a node runs it, or `_table.py` the only one."""
