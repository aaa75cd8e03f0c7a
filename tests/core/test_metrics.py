"""What is counted comes out in the format that Prometheus reads."""

import math
import re
import timeit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hemiola.core.metrics import EngineMetrics, Histogram, Registry


def parsed(registry: Registry) -> dict[tuple[str, tuple[str, ...]], float]:
    """Every sample as prometheus-client reads it: (name, label values) -> value."""
    return {
        (sample.name, tuple(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(registry.render())
        for sample in family.samples
    }


def test_counters_and_gauges_are_read_back_with_their_labels() -> None:
    registry = Registry()
    tokens = registry.counter("tokens", "Tokens.", "model")
    running = registry.gauge("running", "Requests.", "model", "kind")
    tokens("a").add()
    tokens("a").add(41)
    tokens('odd "name"\\\n').add(2)
    running("a", "text").set(2.5)
    assert parsed(registry) == {
        ("tokens_total", ("a",)): 42,
        ("tokens_total", ('odd "name"\\\n',)): 2,
        ("running", ("a", "text")): 2.5,
    }


def test_a_histogram_counts_up_to_and_including_its_bounds() -> None:
    registry = Registry()
    latency = registry.histogram("latency", "Seconds.", bounds=(0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 7.0):
        latency().observe(seconds)
    assert parsed(registry) == {
        ("latency_bucket", ("0.1",)): 2,
        ("latency_bucket", ("1",)): 3,
        ("latency_bucket", ("+Inf",)): 4,
        ("latency_sum", ()): 7.65,
        ("latency_count", ()): 4,
    }


def test_quantiles_are_upper_bounds() -> None:
    histogram = Histogram((0.1, 1.0))
    assert math.isnan(histogram.quantile(0.5))
    for seconds in (0.05, 0.06, 0.5, 7.0):
        histogram.observe(seconds)
    assert (histogram.quantile(0.5), histogram.quantile(0.75), histogram.quantile(0.99)) == (0.1, 1.0, math.inf)


def test_every_sample_belongs_to_a_family_with_a_type() -> None:
    metrics = EngineMetrics()
    metrics.steps("chat", "decode").add()
    metrics.running("chat").set(1)
    metrics.request_s("chat").observe(1)
    families = list(text_string_to_metric_families(metrics.render()))
    kinds = {family.name: family.type for family in families if family.samples}
    assert kinds == {
        "hemiola_steps": "counter",
        "hemiola_requests_running": "gauge",
        "hemiola_request_seconds": "histogram",
    }


def test_wrong_labels_and_double_names_are_errors_of_ours() -> None:
    registry = Registry()
    steps = registry.counter("steps", "Steps.", "model", "phase")
    with pytest.raises(AssertionError, match="steps has labels"):
        steps("a")
    with pytest.raises(AssertionError, match="two metrics are called steps"):
        registry.gauge("steps", "Again.")


def test_the_engines_metrics_have_fit_names_and_one_registry_per_engine() -> None:
    one, other = EngineMetrics(), EngineMetrics()
    one.steps("chat", "decode").add()
    one.first_token_s("chat").observe(0.2)
    assert ("hemiola_steps_total", ("chat", "decode")) in parsed(one)
    assert parsed(other) == {}
    names = re.findall(r"^# TYPE (\S+)", one.render(), flags=re.MULTILINE)
    assert len(names) >= 10 and all(re.fullmatch(r"hemiola_[a-z_]+", name) for name in names)


def test_an_update_is_cheap_enough_for_every_token() -> None:
    latency = EngineMetrics().inter_token_s("chat")
    best = min(timeit.repeat(lambda: latency.observe(0.02), number=1000, repeat=20)) / 1000
    assert best < 5e-6
