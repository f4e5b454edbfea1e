"""Prometheus metrics, beside those of kserve: counts and durations of requests, rows, reloads, refused requests."""

from collections.abc import Iterator

from prometheus_client import Counter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dovetail_kserve.plane import Repository
from dovetail_kserve.statistics import PHASES

__all__ = ["REFUSED", "ModelCollector"]

REFUSED = Counter("dovetail_refused_requests", "Requests answered with an error", ("code", "status"))

_VERSION = ("model_name", "version")


class ModelCollector(Collector):
    """The statistics of all models as metrics, made when they are asked for."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        requests = CounterMetricFamily("dovetail_requests", "Requests to a version", labels=(*_VERSION, "outcome"))
        seconds = CounterMetricFamily("dovetail_request_seconds", "Time of requests by phase", labels=(*_VERSION, "phase"))
        rows = CounterMetricFamily("dovetail_rows", "Rows of requests that succeeded", labels=_VERSION)
        ready = GaugeMetricFamily("dovetail_model_ready", "1 when the version is loaded", labels=_VERSION)
        reloads = CounterMetricFamily("dovetail_reloads", "Changed files that were loaded", labels=("model_name", "outcome"))
        for name, model in self._repository.all.items():
            loaded = model.versions.loaded
            for version, statistics in tuple(model.versions.statistics.items()):
                durations = statistics.durations
                for outcome in ("success", "fail"):
                    requests.add_metric((name, version, outcome), durations[outcome].count)
                for phase in PHASES:
                    seconds.add_metric((name, version, phase), durations[phase].ns / 1e9)
                rows.add_metric((name, version), statistics.rows)
                ready.add_metric((name, version), float(version in loaded))
            for outcome, count in model.versions.reloads.items():
                reloads.add_metric((name, outcome), count)
        yield from (requests, seconds, rows, ready, reloads)
