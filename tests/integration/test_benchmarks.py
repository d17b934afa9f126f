"""The programs in `benchmarks/` come to an end and say what they measured; how fast anything is, no test asks."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
OF_SPARK = ("spark_loop", "spark_latency", "spark_rebalance", "spark_reader", "spark_sinks", "offset_log")
OF_OFFSETS = ("offsets", "stores", "migration", "topics")
MEASURE = re.compile(r"(\w+) (-?\d+\.\d+) (-|[\d.]+) (ok|short)")
TIMEOUT_S = 600


@pytest.mark.zookeeper
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["handover", "--point", "10"], "argument --point: '10': write 2 numbers with commas between them"),
        (["floor", "--point", "10,x"], "argument --point: 'x' is no whole number from 1 on"),
        (["scale", "--point", "1,2,3,4"], "argument --point: '1,2,3,4': write 3 numbers with commas between them"),
        (["handover", "--runs", "0"], "argument --runs: '0' is no whole number from 1 on"),
    ],
)
def test_a_wrong_option_is_told_before_anything_is_measured(words: list[str], why: str) -> None:
    name, *options = words
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"{name}.py: error: {why}\n")


def test_every_kind_of_a_settled_groups_step_can_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    assignors = importlib.import_module("assignors")
    settled = assignors.settled_group((20, 200))
    for view in (settled, assignors.limited(settled), assignors.announced(settled)):
        for changed in (assignors.channel_changed, assignors.owner_changed):
            assert assignors.step_ms(view, changed, runs=2) > 0


def test_the_steps_of_a_profiled_job_add_up_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    profile = importlib.import_module("reader_profile")
    task = {"took_s": 0.25, "steps_s": {"client": 0.0625, "handover": 0.125}}
    found = profile.steps_of([{**task, "began_s": 11.0}, {**task, "began_s": 10.5}], 10.0, 11.5)
    inside = {"client": 0.125, "handover": 0.25, "columns": 0.125}
    assert {step: took for step, took in found.items() if took} == {
        **inside,
        "start": 0.5,
        "between": 0.25,
        "end": 0.25,
    }
    assert (list(found), sum(found.values())) == (list(profile.STEPS), 1.5)


@pytest.mark.zookeeper
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("name", OF_SPARK)
def test_a_quick_run_ends_with_its_measures(name: str, tmp_path: Path, spark_java: None) -> None:
    run_quickly(name, tmp_path)


@pytest.mark.zookeeper
@pytest.mark.kafka
@pytest.mark.long
@pytest.mark.parametrize("name", OF_OFFSETS)
def test_a_quick_run_with_offsets_and_topics_ends_with_its_measures(name: str, tmp_path: Path) -> None:
    run_quickly(name, tmp_path)


@pytest.mark.spark
@pytest.mark.s3
@pytest.mark.long
def test_a_quick_run_in_s3_and_against_deltas_own_sink_ends_with_its_measures(tmp_path: Path, spark_java: None) -> None:
    run_quickly("spark_sinks", tmp_path, "--s3", "--streams")


@pytest.mark.zookeeper
@pytest.mark.legacy
@pytest.mark.long
def test_a_quick_run_with_old_consumers_ends_with_its_measures(tmp_path: Path) -> None:
    run_quickly("legacy", tmp_path)


@pytest.mark.zookeeper
def test_a_benchmark_of_this_tree_is_compared_with_that_of_another_checkout(tmp_path: Path) -> None:
    told = tmp_path / "measures.json"
    command = [sys.executable, str(BENCHMARKS / "against.py"), str(ROOT), "floor", "--runs", "1", "--json", str(told)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command += ["--slower", "1000", "--", "--point", "2,20", "--runs", "1"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    written = json.loads(told.read_text(encoding="utf-8"))
    (here,), (there,) = written["here"], written["there"]
    ratios = {f"{name}_over_before": row["value"] / there[name]["value"] for name, row in here.items()}
    assert {m["measure"]: m["value"] for m in written["measures"]} == ratios
    # a busy machine may hand over the reply from which a figure counts only after the start with which it ends: then
    # that figure is negative
    assert done.returncode == (0 if min(ratios.values()) >= 1 / 1000 else 1), done.stderr[-3000:]


@pytest.mark.zookeeper
def test_a_checkout_without_the_benchmark_is_told(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "against.py"), str(tmp_path), "floor"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"against.py: error: {tmp_path} has no benchmark 'floor'\n")


def run_quickly(name: str, tmp_path: Path, *options: str) -> None:
    """Run a benchmark with `--quick`; it prints the measures that it writes, and ends with the exit code for them."""
    told = tmp_path / "measures.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", *options, "--json", str(told)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S)
    measures = json.loads(told.read_text(encoding="utf-8"))["measures"] if told.exists() else []
    assert measures, done.stderr[-3000:]
    printed = [MEASURE.fullmatch(line) for line in done.stdout.splitlines()[-len(measures) :]]
    assert [(line[1], line[4] == "ok") for line in printed if line] == [(m["measure"], m["ok"]) for m in measures]
    assert done.returncode == (0 if all(each["ok"] for each in measures) else 1)
