"""A service without Spark: the latest value of each key of a topic, in a SQLite table that repetition does not harm.

    python examples/plain_consumer.py ZOOKEEPER BOOTSTRAP_SERVERS TOPIC DATABASE

Start several: each is given its share, and partitions move when one comes or goes. A record that comes again after a
crash finds its own or a later offset in the table, and changes nothing.
"""

from __future__ import annotations

import signal
import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from zkcoord.errors import FencedError
from zkcoord.kafka import KafkaConsumer

TABLE = """create table if not exists latest
    (key text, topic text, partition int, offset int, value text, primary key (key, topic, partition))"""
UPSERT = """insert into latest values (?, ?, ?, ?, ?) on conflict do update
    set offset = excluded.offset, value = excluded.value where excluded.offset > offset"""


def keep_latest(zookeeper: str, bootstrap_servers: str, topic: str, database: Path, stopped: Callable[[], bool]) -> int:
    """Read until `stopped()`; returns how many messages were handled."""
    handled = 0
    table = sqlite3.connect(database)
    try:
        table.execute(TABLE)
        with KafkaConsumer(zookeeper, bootstrap_servers, "latest-values", [topic], from_beginning=True) as consumer:
            while not stopped():
                messages = consumer.poll_many(500, timeout=0.5)
                rows = [
                    ((m.key() or b"").decode(), m.topic(), m.partition(), m.offset(), (m.value() or b"").decode())
                    for m in messages
                ]
                with table:  # one transaction
                    table.executemany(UPSERT, rows)
                handled += len(rows)
                try:
                    consumer.commit()  # after the table has them: at-least-once, and the table makes it once
                except FencedError as error:
                    print(f"taken away meanwhile: {error}", file=sys.stderr)  # they come again, elsewhere
    finally:
        table.close()
    return handled


def main() -> None:
    """Until SIGTERM or Ctrl-C."""
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    zookeeper, bootstrap_servers, topic, database = sys.argv[1:]
    print(keep_latest(zookeeper, bootstrap_servers, topic, Path(database), stopped.is_set), "messages")


if __name__ == "__main__":
    main()
