"""Renames a draft to its file, in file systems where a file gets its name by a rename.

HDFS lets a rename replace a file atomically if it is asked to (`Options.Rename.OVERWRITE`), but libhdfs cannot ask for
that. So Arrow removes the old file first, and renames then. In between nobody sees the range. And a program that slept,
and dies in between, has removed its heir's file, which nobody writes again. So Hadoop's client in Spark's driver does
the rename.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zkcoord.spark.jobs import is_connect
from zkcoord.spark.sinks.stores import of_hadoop

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

WHO = ("user", "kerb_ticket")  # options for which the driver's client would be another user


def renamer(
    spark: SparkSession, uri: str, options: Mapping[str, Any], store: FileSystem
) -> Callable[[str, str], object]:
    """Return a function that renames a draft to its file, both below `uri`, and replaces a file of that name.

    The rename is atomic, except by Arrow's two steps: on HDFS through Spark Connect, or with options in `WHO`.
    """
    if not of_hadoop(uri) or is_connect(spark) or any(name in options for name in WHO):
        by_arrow: Callable[[str, str], object] = store.move
        return by_arrow
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
    return lambda draft, file: files.rename(path(f"{uri}/{draft}"), path(f"{uri}/{file}"), asked)
