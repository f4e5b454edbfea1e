"""The kernels: `<stem>.py` holds `KERNELS`, in the order in which they are tried, or `_table.py` the only one."""
