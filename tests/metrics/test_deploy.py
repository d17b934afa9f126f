"""The files in deploy/: every query parses, and every metric and label in it is one that is served."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from tests.metrics.prometheus import program
from zkcoord.metrics import names

DEPLOY = Path(__file__).parents[2] / "deploy"
DOCS = (Path(__file__).parents[2] / "docs/monitoring.md").read_text(encoding="utf-8")
SERVED = {sample: each for each in names.ALL for sample in each.samples}
OF_PROMETHEUS = {"le", "instance", "job"}
RULES = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text(encoding="utf-8"))
DASHBOARD = json.loads((DEPLOY / "grafana/zkcoord.json").read_text(encoding="utf-8"))
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
ALERTS_FILE, FIRING = DEPLOY / "prometheus/alerts.yml", Path(__file__).parent / "alerts_fire.yml"
NAME = re.compile(r"Zkcoord([A-Z][a-z]+)+")
TEMPLATE = re.compile(r"\{\{ (\$labels\.[a-z_]+|\$value \| humanize(Duration|Percentage)?) \}\}")
DURATION = re.compile(r"\d+[smhd]")


def queries() -> Iterator[tuple[str, str]]:
    """Where each query stands, and the query, with Grafana's variables filled in."""
    for rule in ALERTS:
        yield rule["alert"], rule["expr"]
    found = [(panel["title"], each["expr"]) for panel in DASHBOARD["panels"] for each in panel["targets"]]
    found += [(each["name"], each["expr"]) for each in DASHBOARD["annotations"]["list"]]
    for title, expression in found:
        yield title, expression.replace("$__rate_interval", "1m").replace("$group", ".*")


def selectors(node: Any) -> Iterator[promql_parser.VectorSelector]:
    """All places of a query that name a metric."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    elif isinstance(node, promql_parser.Call):
        for each in node.args:
            yield from selectors(each)
    else:
        for name in ("expr", "lhs", "rhs", "vector_selector"):
            below = getattr(node, name, None)
            if below is not None:
                yield from selectors(below)


def wrong(expression: str) -> list[str]:
    """What a query names that is not served."""
    found = []
    for each in selectors(promql_parser.parse(expression)):
        known = SERVED.get(each.name or "")
        if known is None:
            found.append(f"metric {each.name}")
        else:
            named = {matcher.name for matcher in each.matchers.matchers}
            found += [f"label {label} of {each.name}" for label in named - {*known.labels, *OF_PROMETHEUS}]
    grouped = re.findall(r"\bby \(([^)]*)\)", expression)
    labels = {label.strip() for text in grouped for label in text.split(",")}
    known_labels = {label for each in names.ALL for label in each.labels} | OF_PROMETHEUS
    return found + [f"label {label}" for label in sorted(labels - known_labels)]


@pytest.mark.parametrize(("place", "expression"), list(queries()), ids=lambda text: text[:40])
def test_every_query_parses_and_names_metrics_and_labels_that_are_served(place: str, expression: str) -> None:
    assert wrong(expression) == []


def test_the_check_finds_a_wrong_metric_and_a_wrong_label() -> None:
    assert wrong("rate(zkcoord_lag[1m])") == ["metric zkcoord_lag"]
    assert wrong('sum by (host) (zkcoord_group_members{topic="t"})') == [
        "label topic of zkcoord_group_members",
        "label host",
    ]
    with pytest.raises(ValueError, match=r".+"):
        wrong("sum(zkcoord_group_members")


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_what_to_do_and_the_page_has_it(rule: dict[str, Any]) -> None:
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {*rule["annotations"]} == {"summary", "description"}
    assert DURATION.fullmatch(rule.get("for", "1m"))
    assert f"`{rule['alert']}`" in DOCS
    labels = {label for each in selectors(promql_parser.parse(rule["expr"])) for label in SERVED[each.name].labels}
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert used <= labels | OF_PROMETHEUS


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alerts_name_and_texts_are_as_prometheus_has_them(rule: dict[str, Any]) -> None:
    assert NAME.fullmatch(rule["alert"]) and [each["alert"] for each in ALERTS].count(rule["alert"]) == 1
    for text in rule["annotations"].values():
        assert all(TEMPLATE.fullmatch(each) for each in re.findall(r"\{\{.*?\}\}", text)), text
        assert not re.search(r"[{}]", re.sub(r"\{\{.*?\}\}", "", text)), text
    top = promql_parser.parse(rule["expr"])
    kept = {label.strip() for labels in re.findall(r"\bby \(([^)]*)\)", rule["expr"]) for label in labels.split(",")}
    used = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
    assert not kept or isinstance(top, promql_parser.VectorSelector) or used <= kept, "the sum has no such label"


@pytest.mark.parametrize(
    "arguments", [("check", "rules", str(ALERTS_FILE)), ("test", "rules", str(FIRING))], ids=" ".join
)
def test_prometheus_takes_the_rules_and_alerts_fire_when_they_should(arguments: tuple[str, ...]) -> None:
    """promtool evaluates the rules over the series in tests/metrics/alerts_fire.yml."""
    done = subprocess.run([program("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboards_legends_and_variables_name_labels_that_are_served() -> None:
    labels = {label for each in names.ALL for label in each.labels} | OF_PROMETHEUS
    legends = [each["legendFormat"] for panel in DASHBOARD["panels"] for each in panel["targets"]]
    assert {name for text in legends for name in re.findall(r"\{\{(\w+)\}\}", text)} <= labels
    (variable,) = [each for each in DASHBOARD["templating"]["list"] if each["type"] == "query"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]["query"]).groups()  # type: ignore[union-attr]
    assert label in SERVED[metric].labels
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids)) > 15


def test_the_example_of_a_configuration_loads_the_rules_that_are_there() -> None:
    example = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
    assert all((DEPLOY / "prometheus" / name).is_file() for name in example["rule_files"])
    assert [each["job_name"] for each in example["scrape_configs"]] == ["zkcoord"]


def test_the_page_has_every_metric_and_no_other() -> None:
    written = set(re.findall(r"`(zkcoord_[a-z_]+)`", DOCS))
    assert written == {each.samples[0] if each.kind == names.COUNTER else each.name for each in names.ALL}
