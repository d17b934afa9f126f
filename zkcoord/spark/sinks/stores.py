"""Opens the file system of a URI with Arrow. This module runs in the driver and in Spark's Python workers.

Spark passes these functions by value, so this module imports no other module of zkcoord.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pyarrow import fs

SYSTEMS = {  # scheme -> Arrow's class
    "s3": "S3FileSystem",
    "s3a": "S3FileSystem",
    "s3n": "S3FileSystem",
    "gs": "GcsFileSystem",
    "gcs": "GcsFileSystem",
    "abfs": "AzureFileSystem",
    "abfss": "AzureFileSystem",
    "hdfs": "HadoopFileSystem",
    "viewfs": "HadoopFileSystem",
    "file": "LocalFileSystem",
}
WITH_RENAMES = ("HadoopFileSystem", "LocalFileSystem")  # in these, readers see a file while it is being written
NAMENODE_PORT = 8020
S3_TRIES = 10  # attempts with growing pauses: about a minute of answers 503
LACKING = "lacks the library of this file system"  # the driver recognises it in a Java trace
REASONS = {
    "HadoopFileSystem": "libhdfs, which comes with Hadoop: set HADOOP_HOME, JAVA_HOME and CLASSPATH="
    "$(hadoop classpath --glob)",
}
BUILT_WITHOUT = "this build of pyarrow has no {}: install pyarrow from PyPI, or conda-forge's pyarrow"


def renames(uri: str) -> bool:
    """True for a file system where a file gets its name by a rename. False for an object store."""
    return _system(uri) in WITH_RENAMES


def of_hadoop(uri: str) -> bool:
    """True for a file system that Hadoop's client opens."""
    return _system(uri) == "HadoopFileSystem"


def _system(uri: str) -> str | None:
    """The name of Arrow's class. None: the scheme is unknown."""
    return SYSTEMS.get(urlsplit(uri).scheme.lower())


def open_store(uri: str, options: Mapping[str, Any]) -> fs.FileSystem:
    """Return a file system whose root is this folder. `options` are arguments of Arrow's class.

    Raises ValueError for a URI or options that it does not accept, and RuntimeError (LACKING) if its library is
    missing.
    """
    parts = urlsplit(uri)
    name = _system(uri)
    if name is None:
        raise ValueError(f"{uri!r} is of no file system that this sink knows; those are {', '.join(sorted(SYSTEMS))}")
    kind = getattr(fs, name, None)
    if kind is None:
        raise RuntimeError(f"{LACKING}: {BUILT_WITHOUT.format(name)}")
    path = f"{parts.netloc}{parts.path}"  # of a bucket
    given = dict(options)
    arguments: tuple[Any, ...] = ()
    if name == "S3FileSystem":
        tries = fs.AwsStandardS3RetryStrategy(max_attempts=S3_TRIES)
        given = {"allow_delayed_open": True, "retry_strategy": tries, **given}  # so that a small file is one request
    elif name == "AzureFileSystem":
        container, at, host = parts.netloc.rpartition("@")  # abfss://container@account.dfs.core.windows.net/folder
        if at:
            given = {"account_name": host.partition(".")[0], **given}
            path = f"{container}{parts.path}"
    elif name == "HadoopFileSystem":
        arguments = (f"{parts.scheme}://{parts.hostname}" if parts.scheme == "viewfs" else parts.hostname or "default",)
        given = {"port": parts.port or (NAMENODE_PORT if parts.hostname and parts.scheme == "hdfs" else 0), **given}
        path = parts.path
    elif name == "LocalFileSystem":
        path = parts.path
    try:
        return fs.SubTreeFileSystem(path.rstrip("/"), kind(*arguments, **given))
    except TypeError as error:
        raise ValueError(f"storage_options do not fit: {error}; they are the arguments of pyarrow.fs.{name}") from error
    except OSError as error:
        raise RuntimeError(f"{LACKING}: {REASONS.get(name, name)} ({error})") from error
