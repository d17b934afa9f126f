"""Kafka's old high-level consumer (0.8.2 to 1.1) as a program that says what it does: java/OldConsumer.java."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from zkcoord.embedded.artifacts import kafka_jars
from zkcoord.embedded.java_program import java_command

SOURCE = Path(__file__).parent / "java" / "OldConsumer.java"
QUIET = (f"-Dlog4j.configuration={SOURCE.with_name('log4j.properties').as_uri()}",)

old_jars = cache(kafka_jars)


def old_consumer_command(version: str, words: Mapping[str, str], *, heap: str = "128m") -> tuple[str, ...]:
    """Return the command line of one consumer. `words` are the program's own, and properties of the consumer.

    UnavailableError when the jars of that version cannot be fetched.
    """
    arguments = [f"{key}={value}" for key, value in words.items()]
    return java_command(SOURCE, old_jars(version), arguments, heap=heap, options=QUIET)
