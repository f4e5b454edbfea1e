"""The kernels: `<stem>.py` holds `KERNELS`, the ordered list for the standard operator of that stem, or `_table.py` the only one.

The kernels of a stem get its standard operators only, never those of other packages: that is what their assertions state.
"""
