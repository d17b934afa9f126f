"""Metrics as objects of Prometheus' client library. Instruments count when something happens; other metrics are looked
up at each request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from zkcoord.metrics.names import COUNTER, HISTOGRAM, Name, Sample


class Instruments:
    """Counters and histograms. `make` makes them before their first use. Any thread may use them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._counters: dict[str, Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    def make(self, names: Iterable[Name]) -> None:
        """Make the counters and histograms among these metrics, so that they are listed before anything is counted."""
        for each in names:
            if each.kind == HISTOGRAM:
                made = Histogram(each.name, each.text, each.labels, buckets=each.buckets, registry=self._registry)
                self._histograms[each.name] = made
            elif each.kind == COUNTER and not each.looked_up:
                self._counters[each.name] = Counter(each.name, each.text, each.labels, registry=self._registry)

    def count(self, name: Name, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        counter = self._counters[name.name]
        (counter.labels(*labels) if labels else counter).inc(by)

    def observe(self, name: Name, seconds: float, *labels: str) -> None:
        """Add one observation to a histogram."""
        histogram = self._histograms[name.name]
        (histogram.labels(*labels) if labels else histogram).observe(seconds)

    def forget(self, name: Name, *labels: str) -> None:
        """Forget all samples whose first label values are `labels`."""
        known = {**self._counters, **self._histograms}[name.name]
        samples = [sample for metric in known.collect() for sample in metric.samples]
        for values in {tuple(sample.labels.get(each, "") for each in name.labels) for sample in samples}:
            if values[: len(labels)] == labels:
                known.remove(*values)


class LookedUp(Collector):
    """Metrics that are read from their sources at each request."""

    def __init__(self) -> None:
        self.sources: list[Callable[[], Iterable[Sample]]] = []

    def collect(self) -> Iterator[Metric]:
        """Ask all sources. Samples with the same labels are added up: one program may have two consumers."""
        found: dict[Name, dict[tuple[str, ...], float]] = {}
        for source in list(self.sources):
            for name, labels, value in source():
                samples = found.setdefault(name, {})
                samples[labels] = samples.get(labels, 0) + value
        for name, samples in found.items():
            family = (CounterMetricFamily if name.kind == COUNTER else GaugeMetricFamily)(
                name.name, name.text, labels=name.labels
            )
            for labels, value in samples.items():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Return nothing: the metrics are known only when the sources are asked."""
        return ()
