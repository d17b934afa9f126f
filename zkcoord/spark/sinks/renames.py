"""Renames a draft to its file, in file systems where a file gets its name by a rename.

HDFS lets a rename replace a file atomically if it is asked to (`Options.Rename.OVERWRITE`), but libhdfs cannot ask for
that. So Arrow removes the old file first, and renames then. In between nobody sees the range. And a program that slept,
and dies in between, has removed its heir's file, which nobody writes again. So Hadoop's client in Spark's driver does
the rename. Where Arrow must do it, a file that came while the batch was written stays: it is the heir's, of the same
range. So does a file with the same content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyarrow import fs

from zkcoord.spark.jobs import is_connect
from zkcoord.spark.sinks.stores import of_hadoop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WHO = ("user", "kerb_ticket")  # options for which the driver's client would be another user


def renamer(
    spark: SparkSession, uri: str, options: Mapping[str, Any], store: fs.FileSystem
) -> Callable[[str, str, bool], object]:
    """Return a function that renames a draft to its file, both below `uri`. It is also told if a file of that name was
    there when the draft was written.

    Such a file is replaced. The rename is atomic, except by Arrow's two steps: on HDFS through Spark Connect, or with
    options in `WHO`. Then only a file with another content is replaced.
    """
    if not of_hadoop(uri):
        return lambda draft, file, _: store.move(draft, file)
    if is_connect(spark) or any(name in options for name in WHO):
        return partial(_by_arrow, store)
    context: Any = spark.sparkContext
    hadoop = context._jvm.org.apache.hadoop
    settings = hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    for name, value in (options.get("extra_conf") or {}).items():
        settings.set(name, value)
    path = hadoop.fs.Path
    files = hadoop.fs.FileContext.getFileContext(path(uri).toUri(), settings)
    kind = hadoop.fs.Options.Rename
    asked = context._gateway.new_array(kind, 1)
    asked[0] = kind.OVERWRITE
    return lambda draft, file, _: files.rename(path(f"{uri}/{draft}"), path(f"{uri}/{file}"), asked)


def _by_arrow(store: fs.FileSystem, draft: str, file: str, was_there: bool) -> None:
    if store.get_file_info(file).type == fs.FileType.NotFound:
        store.move(draft, file)
    elif was_there and _content(store, draft) != _content(store, file):
        store.move(draft, file)  # in two steps
    else:
        store.delete_file(draft)


def _content(store: fs.FileSystem, file: str) -> bytes:
    with store.open_input_stream(file) as source:
        return bytes(source.read())
