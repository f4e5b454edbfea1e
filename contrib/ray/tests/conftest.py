"""Shared by the tests that need a Ray."""

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def cluster() -> Iterator[str]:
    """The address of a cluster that this process uses: two nodes on this machine, with a CPU each.

    Each process of pytest-xdist that asks has its own.
    """
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    # Ray's threads for usage statistics log tracebacks for as long as the process lives. To format one, Python 3.11 parses source
    # code, which breaks `ast.parse` of another test on another thread: "AST constructor recursion depth mismatch".
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    made.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    ray.init(address=made.address, log_to_driver=False, logging_level=40)
    yield made.address
    ray.shutdown()
    made.shutdown()
