"""Fetches the jars that PyPI does not have (Kafka, Spark's Kafka connector, a Java compiler) once, and checks them at
each use.

`manifest.json` names every file and its SHA-256 sum; only named files come on a class path. A fetch holds a lock and
writes to a folder of its own. The folder is renamed when the fetch is complete, so an interrupted fetch leaves nothing
that looks finished.
"""

import contextlib
import fcntl
import hashlib
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkcoord.embedded import ivy
from zkcoord.embedded.java import cache_dir, pyspark_jars
from zkcoord.errors import CorruptError, UnavailableError, UsageError

MANIFEST = Path(__file__).with_name("manifest.json")
KAFKA_VERSION = "3.9.1"  # of the last release line that supports ZooKeeper
KAFKA_4_VERSION = "4.1.0"
# The versions of the old consumers that tests run: one for each kind of behaviour. 0.8.2: the first with round robin,
# in which each member computes only its own share; its broker is set by one host and port. 0.11: the last with Scala's
# JSON parser, and the last whose round robin hashes the names `[topic,partition]`. 1.1: the last with old consumers; it
# reads JSON by Jackson, and escapes regexes twice.
OLD_KAFKA_VERSIONS = ("0.8.2.2", "0.11.0.2", "1.1.1")
DELTA_VERSION = "4.0.0"  # for Spark 4.0
ICEBERG_VERSION = "1.10.0"  # the first for Spark 4.0
HADOOP_VERSION = "3.4.1"  # the version of the client in PySpark 4.0
COMPILER_VERSION = "3.36.0"  # Eclipse's, the first for Java 21: a Java runtime has no compiler of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Bundle:
    """Jars that are fetched together. `files`: name → SHA-256 in hex; None if the manifest does not have this version.

    If `files` is None, only `artifacts` can be checked: the files' names without version.
    """

    name: str
    version: str
    dependencies: tuple[str, ...]
    excludes: tuple[str, ...]
    artifacts: tuple[str, ...]
    files: Mapping[str, str] | None
    bytes_total: int | None

    @property
    def title(self) -> str:
        """Name the bundle to people: "kafka 3.9.1"."""
        return f"{self.name} {self.version}"


Fetch = Callable[[Bundle, Path, Path], Path]  # bundle, empty folder to work in, final folder → folder with the jars


def artifact(file_name: str) -> str:
    """Return a jar's name without its version.

    >>> artifact("kafka_2.13-3.9.1.jar"), artifact("spark-sql-kafka-0-10_2.13-4.0.0.jar")
    ('kafka_2.13', 'spark-sql-kafka-0-10_2.13')
    """
    return re.sub(r"-\d[^-]*(-SNAPSHOT|-\d+)?\.jar$", "", file_name)


def load_bundle(name: str, version: str) -> Bundle:
    """Return the bundle of that name and version. For a version that the manifest does not have, return the bundle of
    the newest version that it has, with the wanted version in its dependencies."""
    versions = json.loads(MANIFEST.read_text(encoding="utf-8"))[name]
    known = max(versions, key=lambda text: [int(part) for part in text.split(".")])
    entry = versions.get(version, versions[known])
    at_known, at_version = f":{known}", f":{version}"
    return Bundle(
        name=name,
        version=version,
        dependencies=tuple(
            row.removesuffix(at_known) + at_version if version not in versions and row.endswith(at_known) else row
            for row in entry["dependencies"]
        ),
        excludes=tuple(entry["excludes"]),
        artifacts=tuple(sorted(artifact(file) for file in entry["files"])),
        files=entry["files"] if version in versions else None,
        bytes_total=entry["bytes"] if version in versions else None,
    )


def spark_version() -> str:
    """Return the version of the installed PySpark's jars, which the connector must match. Does not import PySpark."""
    for jar in pyspark_jars().glob("spark-core_*.jar"):
        return jar.name.removesuffix(".jar").partition("-core_")[2].partition("-")[2]
    raise UsageError(
        f'no spark-core among the jars in {pyspark_jars()}: pip install --force-reinstall "zkcoord[spark]"'
    )


def kafka_jars(version: str = KAFKA_VERSION) -> tuple[Path, ...]:
    """Return all jars of a Kafka broker's class path; fetched if absent (45 MB, old versions 13 to 26 MB)."""
    return ensure(load_bundle("kafka", version), cache_dir())


def kafka_tools_jars(version: str = KAFKA_VERSION) -> tuple[Path, ...]:
    """Return the jar of Kafka's own command line tools, which run beside `kafka_jars()`; fetched if absent (0.5 MB)."""
    return ensure(load_bundle("kafka-tools", version), cache_dir())


def compiler_jars() -> tuple[Path, ...]:
    """Return the jar of a Java compiler that runs on a Java runtime; fetched if absent (3 MB)."""
    return ensure(load_bundle("java-compiler", COMPILER_VERSION), cache_dir())


def connector_jars() -> tuple[Path, ...]:
    """Return the four jars of Spark's Kafka connector for the installed PySpark; fetched if absent (10 MB)."""
    return ensure(load_bundle("spark-kafka-connector", spark_version()), cache_dir())


def delta_jars() -> tuple[Path, ...]:
    """Return the jars of Delta for Spark, for a benchmark that writes and a test that reads; fetched if absent (8
    MB)."""
    return ensure(load_bundle("delta-spark", DELTA_VERSION), cache_dir())


def iceberg_jars() -> tuple[Path, ...]:
    """Return the jar of Iceberg for Spark, which a test reads tables with; fetched if absent (47 MB)."""
    return ensure(load_bundle("iceberg-spark", ICEBERG_VERSION), cache_dir())


def hadoop_jars() -> tuple[Path, ...]:
    """Return the jar of HDFS' servers, which tests run beside PySpark's jars of Hadoop; fetched if absent (40 MB)."""
    return ensure(load_bundle("hadoop", HADOOP_VERSION), cache_dir())


def s3a_jars() -> tuple[Path, ...]:
    """Return the jars with which Spark writes to `s3a://`, for a benchmark; fetched if absent (9 MB).

    Of Amazon's SDK, whose bundle has 560 MB, they are the modules that Hadoop uses.
    """
    return ensure(load_bundle("hadoop-aws", HADOOP_VERSION), cache_dir())


def fetch_with_ivy(bundle: Bundle, work: Path, keep: Path, *, rewrites: bool = True) -> Path:
    """Fetch with Ivy, the usual `Fetch`. `rewrites`: on a terminal the line of progress is rewritten in its place."""
    what = (bundle.title, bundle.dependencies, bundle.excludes, bundle.bytes_total)
    return ivy.fetch(*what, work, keep, rewrites=rewrites)


def ensure(bundle: Bundle, cache: Path, fetch: Fetch = fetch_with_ivy) -> tuple[Path, ...]:
    """Return the bundle's jars, sorted by name; fetch them if any is absent. Each has its sum in the manifest.

    CorruptError names the file with a wrong sum. UnavailableError says why nothing could be fetched.
    """
    folder = cache / "jars" / f"{bundle.name}-{bundle.version}"
    if not complete(bundle, folder):
        with _only_one(bundle, cache):
            if not complete(bundle, folder):  # another process may have been faster
                _fetch_into(bundle, folder, fetch)
    return checked(bundle, folder)


def wanted(bundle: Bundle, folder: Path) -> tuple[Path, ...]:
    """Return the bundle's files in `folder`, sorted by name; other files there are ignored."""
    if bundle.files is not None:
        return tuple(folder / name for name in sorted(bundle.files) if (folder / name).is_file())
    return tuple(path for path in sorted(folder.glob("*.jar")) if artifact(path.name) in bundle.artifacts)


def complete(bundle: Bundle, folder: Path) -> bool:
    """True if all of the bundle's files are in `folder`; their content is not checked."""
    return sorted(artifact(path.name) for path in wanted(bundle, folder)) == sorted(bundle.artifacts)


def checked(bundle: Bundle, folder: Path, advice: str = "remove it to have it fetched again") -> tuple[Path, ...]:
    """Return the bundle's files in `folder`; CorruptError with the advice if one differs from the manifest."""
    paths = wanted(bundle, folder)
    for path in paths if bundle.files is not None else ():
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if bundle.files is not None and found != bundle.files[path.name]:
            raise CorruptError(
                f"{path} is not the file that zkcoord knows (SHA-256 {found}, expected {bundle.files[path.name]}): "
                f"{advice}"
            )
    return paths


def _fetch_into(bundle: Bundle, folder: Path, fetch: Fetch) -> None:
    """Fetch beside `folder`, check, and move the bundle's files to their place."""
    work = folder.with_name(f".fetch-{folder.name}")
    shutil.rmtree(work, ignore_errors=True)  # left by a fetch that was interrupted
    work.mkdir(parents=True)
    try:
        fetched = fetch(bundle, work, folder)
        if not complete(bundle, fetched):
            absent = sorted(set(bundle.files or bundle.artifacts) - {path.name for path in wanted(bundle, fetched)})
            raise UnavailableError(f"{bundle.title} was fetched, but without {', '.join(absent)}")
        kept = {path.name for path in checked(bundle, fetched, "the repository gives another file, nothing was kept")}
        for path in fetched.iterdir():
            if path.name not in kept:
                path.unlink()
        shutil.rmtree(folder, ignore_errors=True)
        fetched.rename(folder)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if bundle.files is None:
        print(
            f"{bundle.title}: its check sums are not known, the files in {folder} are used as they came",
            file=sys.stderr,
        )


@contextlib.contextmanager
def _only_one(bundle: Bundle, cache: Path) -> Iterator[None]:
    """Hold the bundle's lock file. The system releases the lock when the process ends, also after a crash."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{bundle.name}-{bundle.version}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"waiting for another process that fetches {bundle.title}", file=sys.stderr, flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
