"""The contract between the core and devices, and what devices share: kernel table, refusals, memory plan."""
