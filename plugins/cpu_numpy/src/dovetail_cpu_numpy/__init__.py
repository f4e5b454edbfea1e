"""dovetail_cpu_numpy."""
