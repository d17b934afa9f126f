"""What may come on a class path, and what happens when a fetch goes wrong. No network."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from zkcoord.embedded import ivy
from zkcoord.embedded.artifacts import (
    COMPILER_VERSION,
    KAFKA_4_VERSION,
    KAFKA_VERSION,
    MANIFEST,
    OLD_KAFKA_VERSIONS,
    Bundle,
    artifact,
    ensure,
    load_bundle,
)
from zkcoord.embedded.ivy import Progress, module_file
from zkcoord.errors import CorruptError, UnavailableError, UsageError

JARS = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}
SUMS = {name: hashlib.sha256(content).hexdigest() for name, content in JARS.items()}
BUNDLE = Bundle(
    name="thing",
    version="1.0",
    dependencies=("org:one:1.0",),
    excludes=(),
    artifacts=("one", "two"),
    files=SUMS,
    bytes_total=11,
)

KILLED = """
import os, pathlib, signal, sys
from zkcoord.embedded.artifacts import Bundle, ensure
def fetch(bundle, work, keep):
    (work / "one-1.0.jar").write_bytes(b"fir")
    os.kill(os.getpid(), signal.SIGKILL)
thing = Bundle(name="thing", version="1.0", dependencies=(), excludes=(), artifacts=("one",), files={}, bytes_total=0)
ensure(thing, pathlib.Path(sys.argv[1]), fetch)
"""


class Repository:
    """Stands for Ivy: gives `jars`, and notes how often it was asked."""

    def __init__(self, jars: dict[str, bytes]) -> None:
        self.jars = jars
        self.asked = 0

    def __call__(self, bundle: Bundle, work: Path, keep: Path) -> Path:
        self.asked += 1
        assert list(work.iterdir()) == []
        out = work / "out"
        out.mkdir()
        for name, content in self.jars.items():
            (out / name).write_bytes(content)
        return out


def tree(folder: Path) -> list[str]:
    """Every file and folder below, sorted."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_jars_are_fetched_once_and_only_known_ones_are_kept(tmp_path: Path) -> None:
    repository = Repository({**JARS, "unknown-3.0.jar": b"?"})
    folder = tmp_path / "jars" / "thing-1.0"
    for _ in range(2):
        assert ensure(BUNDLE, tmp_path, repository) == (folder / "one-1.0.jar", folder / "two-2.0.jar")
    assert repository.asked == 1
    assert tree(tmp_path) == [
        "jars",
        "jars/thing-1.0",
        "jars/thing-1.0/one-1.0.jar",
        "jars/thing-1.0/two-2.0.jar",
        "thing-1.0.lock",
    ]


def test_a_file_that_the_manifest_does_not_know_never_comes_on_the_class_path(tmp_path: Path) -> None:
    known = ensure(BUNDLE, tmp_path, Repository(JARS))
    (tmp_path / "jars" / "thing-1.0" / "evil-1.0.jar").write_bytes(b"!")
    assert ensure(BUNDLE, tmp_path, Repository(JARS)) == known


def test_a_wrong_sum_is_refused_and_names_the_file(tmp_path: Path) -> None:
    changed = ensure(BUNDLE, tmp_path, Repository(JARS))[1]
    changed.write_bytes(b"changed")
    with pytest.raises(CorruptError) as caught:
        ensure(BUNDLE, tmp_path, Repository(JARS))
    found = hashlib.sha256(b"changed").hexdigest()
    assert str(caught.value) == (
        f"{changed} is not the file that zkcoord knows (SHA-256 {found}, expected {SUMS['two-2.0.jar']}): "
        "remove it to have it fetched again"
    )
    changed.unlink()
    assert ensure(BUNDLE, tmp_path, Repository(JARS))[1].read_bytes() == b"second"


def test_a_repository_that_gives_another_file_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match=r"one-1\.0\.jar is not the file .* the repository gives another file"):
        ensure(BUNDLE, tmp_path, Repository({**JARS, "one-1.0.jar": b"other"}))
    assert tree(tmp_path) == ["jars", "thing-1.0.lock"]


def test_a_fetch_that_lacks_a_file_says_which(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match=r"thing 1\.0 was fetched, but without two-2\.0\.jar"):
        ensure(BUNDLE, tmp_path, Repository({"one-1.0.jar": b"first"}))


def test_an_interrupted_fetch_starts_again(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], cwd=Path(__file__).parents[2], timeout=60)
    assert killed.returncode == -signal.SIGKILL
    assert "jars/.fetch-thing-1.0/one-1.0.jar" in tree(tmp_path)
    assert [path.name for path in ensure(BUNDLE, tmp_path, Repository(JARS))] == sorted(JARS)
    assert "jars/.fetch-thing-1.0" not in tree(tmp_path)


def test_an_unknown_version_is_taken_by_name_and_said_to_be_unchecked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown = replace(BUNDLE, version="9.9", files=None, bytes_total=None)
    jars = {"one-9.9.jar": b"new", "two-3.1-4.jar": b"newer", "three-1.jar": b"?"}
    assert [path.name for path in ensure(unknown, tmp_path, Repository(jars))] == ["one-9.9.jar", "two-3.1-4.jar"]
    assert capsys.readouterr().err == (
        f"thing 9.9: its check sums are not known, the files in {tmp_path}/jars/thing-9.9 are used as they came\n"
    )


def test_the_manifest_names_the_broker_and_the_four_jars_of_the_connector() -> None:
    manifest = json.loads(MANIFEST.read_text(encoding="utf-8"))
    sums = [value for versions in manifest.values() for entry in versions.values() for value in entry["files"].values()]
    assert {len(value) for value in sums} == {64}
    assert "kafka_2.13-3.9.1.jar" in manifest["kafka"]["3.9.1"]["files"]
    assert list(manifest["spark-kafka-connector"]["4.0.0"]["files"]) == [
        "commons-pool2-2.12.0.jar",
        "kafka-clients-3.9.0.jar",
        "spark-sql-kafka-0-10_2.13-4.0.0.jar",
        "spark-token-provider-kafka-0-10_2.13-4.0.0.jar",
    ]


def test_the_old_versions_of_kafka_are_pinned_with_the_sums_of_their_jars() -> None:
    bundles = [load_bundle("kafka", version) for version in OLD_KAFKA_VERSIONS]
    found = [[name for name in bundle.files or () if name.startswith("kafka_2.11-")] for bundle in bundles]
    assert found == [[f"kafka_2.11-{version}.jar"] for version in OLD_KAFKA_VERSIONS]
    assert load_bundle("java-compiler", COMPILER_VERSION).files is not None
    for version in (KAFKA_VERSION, KAFKA_4_VERSION):
        assert f"kafka_2.13-{version}.jar" in (load_bundle("kafka", version).files or ())
        assert list(load_bundle("kafka-tools", version).files or ()) == [f"kafka-tools-{version}.jar"]


def test_another_spark_gets_the_coordinates_of_its_own_version() -> None:
    known, other = load_bundle("spark-kafka-connector", "4.0.0"), load_bundle("spark-kafka-connector", "4.1.2")
    assert known.dependencies == ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0",)
    assert other.dependencies == ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.2",)
    assert (other.files, other.bytes_total, other.artifacts) == (None, None, known.artifacts)
    assert known.artifacts == (
        "commons-pool2",
        "kafka-clients",
        "spark-sql-kafka-0-10_2.13",
        "spark-token-provider-kafka-0-10_2.13",
    )


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("zstd-jni-1.5.6-4.jar", "zstd-jni"),
        ("netty-buffer-4.1.105.Final.jar", "netty-buffer"),
        ("a-1-SNAPSHOT.jar", "a"),
    ],
)
def test_a_jars_name_is_told_from_its_version(file: str, name: str) -> None:
    assert artifact(file) == name


def test_progress_is_a_line_now_and_then_and_one_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(ivy, "time", SimpleNamespace(monotonic=lambda: now_s))  # not for other threads
    out = io.StringIO()
    progress = Progress("kafka 3.9.1", 47_662_313, out)
    for second, done in ((0, 0), (3, 5_000_000), (9, 9_000_000), (10, 12_400_000), (12, 30_000_000), (21, 40_000_000)):
        now_s = 100.0 + second
        progress.show(done)
    progress.end(47_662_313)
    assert out.getvalue() == (
        "fetching kafka 3.9.1: 0 MB of 47 MB (looking up what it needs)\n"
        "fetching kafka 3.9.1: 12 MB of 47 MB\n"
        "fetching kafka 3.9.1: 40 MB of 47 MB\n"
        "fetched kafka 3.9.1: 47 MB in 21 s\n"
    )


def test_the_request_to_ivy_names_what_is_wanted_and_what_is_not() -> None:
    assert module_file("thing-1.0", ["org:one:1.0"], ["org.a", "org.b:c"]) == (
        '<ivy-module version="2.0"><info organisation="zkcoord" module="thing-1.0"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        '<dependency org="org" name="one" rev="1.0" conf="default"/>'
        '<exclude org="org.a"/><exclude org="org.b" module="c"/></dependencies></ivy-module>\n'
    )


def test_settings_that_are_not_there_are_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZKCOORD_IVY_SETTINGS", str(tmp_path / "absent.xml"))
    monkeypatch.setattr(ivy, "find_java", lambda: None)
    with pytest.raises(UsageError, match=r"ZKCOORD_IVY_SETTINGS names .*absent\.xml, which is no file"):
        ivy.fetch("thing 1.0", ["org:one:1.0"], [], None, tmp_path, tmp_path)


@pytest.mark.zookeeper
def test_without_a_repository_the_error_says_what_from_where_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mirror"/><resolvers>'
        '<ibiblio name="mirror" m2compatible="true" root="http://127.0.0.1:1/maven2/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("ZKCOORD_IVY_SETTINGS", str(settings))
    bundle = load_bundle("spark-kafka-connector", "4.0.0")
    with pytest.raises(UnavailableError) as caught:
        ensure(bundle, tmp_path / "cache")
    message = str(caught.value)
    assert message.startswith(
        "spark-kafka-connector 4.0.0 (org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0) could not be fetched "
        f"from the repositories of {settings}. Ivy said:\n"
    )
    assert "Connect to 127.0.0.1:1" in message
    assert message.endswith(f"or copy {tmp_path}/cache/jars/spark-kafka-connector-4.0.0 from a machine that has it.")
    assert tree(tmp_path / "cache") == ["jars", "spark-kafka-connector-4.0.0.lock"]


def test_the_program_that_fetches_explains_itself_and_fetches_nothing(tmp_path: Path) -> None:
    """It fetched for minutes, whatever it was asked."""
    environment = {**os.environ, "ZKCOORD_CACHE": str(tmp_path / "cache")}
    for words, code in ((["--help"], 0), (["--halp"], 2)):
        command = [sys.executable, "-m", "zkcoord.embedded", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
        told = done.stdout if code == 0 else done.stderr
        assert (done.returncode, told.startswith("usage: python -m zkcoord.embedded [-h]")) == (code, True)
        assert "ZKCOORD_CACHE" in told or code
    assert not (tmp_path / "cache").exists()
