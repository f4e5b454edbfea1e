"""From a model to a plan: passes, partition, dispatch, support, report."""
