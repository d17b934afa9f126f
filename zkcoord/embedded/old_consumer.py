"""Kafka's old high-level consumer (0.8.2 to 1.1) as a program that prints what it does: java/OldConsumer.java."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from zkcoord.embedded.artifacts import kafka_jars
from zkcoord.embedded.java import find_java
from zkcoord.embedded.java_program import java_command, java_program

SOURCE = Path(__file__).parent / "java" / "OldConsumer.java"
QUIET = (f"-Dlog4j.configuration={SOURCE.with_name('log4j.properties').as_uri()}",)

old_jars = cache(kafka_jars)


def old_consumer_command(
    version: str, words: Mapping[str, str], *, heap: str = "128m", options: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the command line of one consumer. `words` are arguments of the program, and properties of the consumer.

    UnavailableError when the jars of that version cannot be fetched.
    """
    arguments = [f"{key}={value}" for key, value in words.items()]
    return java_command(SOURCE, old_jars(version), arguments, heap=heap, options=(*QUIET, *options))


def old_consumer_archive(version: str) -> Path:
    """Return the path of the class archive for consumers of that version; the file may be absent."""
    return find_java().archive(*java_program(SOURCE, old_jars(version)))
