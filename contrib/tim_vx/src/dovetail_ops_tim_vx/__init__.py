"""dovetail_ops_tim_vx."""
