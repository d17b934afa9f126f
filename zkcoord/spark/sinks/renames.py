"""Gives a draft the name of its file, where a file gets its name by a rename.

HDFS lets a rename replace a file, at once, if it is asked to (`Options.Rename.OVERWRITE`). libhdfs cannot ask. So Arrow
removes the old file first, and renames then. In between nobody sees the range; and a program that slept, and dies in
between, has taken away its heir's file, which nobody writes again. So Hadoop's client in Spark's driver renames.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from zkcoord.spark.jobs import is_connect
from zkcoord.spark.sinks.stores import of_hadoop

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyspark.sql import SparkSession

WHO = ("user", "kerb_ticket")  # options: the driver's client is somebody else


def renamer(
    spark: SparkSession, uri: str, options: Mapping[str, Any], store: FileSystem
) -> Callable[[str, str], object]:
    """Return a function that renames a draft to its file, both below `uri`, and replaces a file of that name.

    At once, but by Arrow's two steps on HDFS through Spark Connect, or with options of `WHO`.
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
