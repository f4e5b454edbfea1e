"""The kernels: `<stem>.py` holds `KERNELS`, the ordered list for the standard operator of that stem. The folder registers."""
