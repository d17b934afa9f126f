"""One coordinator. It stands for election; once elected, it assigns partitions. Any number may run, but only one
serves.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from zkcoord import settings
from zkcoord.assignors import Assignor, all_assignors, installed_assignors
from zkcoord.core.eligibility import PROTOCOLS
from zkcoord.core.given import given_function, given_number, given_text
from zkcoord.core.retention import RETENTION_MS
from zkcoord.errors import UsageError, ZkcoordError
from zkcoord.logs import emit_fields
from zkcoord.metrics.start import coordinator_metrics
from zkcoord.migrate import first_revision_reads, first_revision_writes, new_tree_id, served
from zkcoord.serving.asker import ASK, INTERVAL_MS, Asker
from zkcoord.serving.election import ID_MAX
from zkcoord.serving.role import CoordinatorRole
from zkcoord.shell.journal.files import JournalFiles
from zkcoord.shell.worker import Line
from zkcoord.shell.zk.store import zookeeper_sessions
from zkcoord.tracing.start import trace_handovers
from zkcoord.tree.candidate import encode_candidate
from zkcoord.tree.paths import FROM_ZOOKEEPER, Layout, layout_named


class Coordinator:
    """A coordinator of every group in one ZooKeeper tree."""

    def __init__(
        self,
        zookeeper: str,
        coordinator_id: int | None = None,
        layout: str = "draft",
        *,
        session_timeout_ms: int = settings.SESSION_TIMEOUT_MS,
        group_retention_ms: int = RETENTION_MS,
        topics: str = FROM_ZOOKEEPER,
        bootstrap_servers: str | None = None,
        kafka_config: Mapping[str, str] | None = None,
        topics_interval_ms: int = INTERVAL_MS,
        zookeeper_config: Any = None,
        journal: str | os.PathLike[str] | None = None,
        on_serving: Callable[[int, int], None] | None = None,
        assignors: Mapping[str, Assignor] | None = None,
        metrics: str | None = None,
    ) -> None:
        """`coordinator_id`: 0 to 2^31-1, None for the smallest free one. `on_serving(id, epoch)` is called at each
        election won. `journal`: a folder for the journal, which has one line for each step with all that was read,
        decided and written; None for no journal. `assignors`: name -> function, in addition to the project's; None for
        those of installed packages. `group_retention_ms`: a group without members and offsets is removed after it.
        `metrics`: HOST:PORT, where metrics and health are served (docs/monitoring.md).
        `topics`: the source of topics, "zookeeper" (Kafka's own nodes) or "kafka" (its metadata). "kafka" needs
        `bootstrap_servers`; `kafka_config` has librdkafka's settings; Kafka is asked every `topics_interval_ms`. A tree
        has one source; a coordinator with another source ends.

        Raises UsageError for an address, id, layout, journal folder or assignor's name that can never work.
        """
        if coordinator_id is not None:
            given_number("coordinator_id", coordinator_id, 0, ID_MAX)
        given_number("group_retention_ms", group_retention_ms)
        given_text("layout", layout)
        if on_serving is not None:
            given_function("on_serving", on_serving)
        if not isinstance(journal, str | os.PathLike | None):
            raise UsageError(f"journal is {journal!r}: pass the path of a folder")
        given_number("topics_interval_ms", topics_interval_ms, 1)
        chosen = layout_named(layout, topics)
        known = all_assignors(installed_assignors(_no_assignor) if assignors is None else assignors)
        self._on_serving = on_serving
        measured = self._measured = coordinator_metrics(metrics)
        sessions = zookeeper_sessions(
            zookeeper, session_timeout_ms=session_timeout_ms, fatal=self._fail, prompt=True, config=zookeeper_config
        )
        self._journal = None if journal is None else JournalFiles(Path(journal), settings.version(), self._no_journal)
        kafka = self._kafka_line(chosen, bootstrap_servers, kafka_config)
        self._driver = measured.driver(sessions, "zkcoord-coordinator", self._event, self._journal, kafka)
        for opened in (self._journal.close if self._journal else None, kafka.end if kafka else None):
            if opened is not None:
                self._driver.at_end(opened)
        loop, events, standing = self._driver.loop, self._driver.events, _standing(coordinator_id, chosen, known)
        asker = None if self._driver.calls is None else Asker(self._driver.calls, topics_interval_ms)
        role = CoordinatorRole(loop, chosen, standing, events, known, retention_ms=group_retention_ms, asker=asker)
        loop.run_role(role, events)
        measured.follow(role)
        trace_handovers(self._driver, role)

    def run(self) -> None:
        """Stand for election and serve until `stop`. If an error ends it, that is raised (SchemaError, a wrong
        chroot)."""
        self._measured.begin()
        try:
            self._driver.run()
        finally:
            self._measured.end()
        if self._driver.loop.fatal is not None:
            raise self._driver.loop.fatal

    def start(self) -> None:
        """Do as `run` on a thread of its own. An error that ends it is then in `error`."""
        self._measured.begin()
        self._driver.start()

    def stop(self) -> None:
        """End the session, so that a standby takes over at once. Idempotent; any thread may call it.

        If `on_serving` or an assignor raised SystemExit (or the like) after `start`, it is raised here, once.
        """
        self._driver.ask("stop")
        self._driver.join()
        self._measured.end()
        self._driver.raise_exit()

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics while it runs; None without metrics."""
        return self._measured.port

    @property
    def error(self) -> BaseException | None:
        """The error by which it ended; None while it runs, and after `stop`."""
        return self._driver.loop.fatal

    def _kafka_line(self, layout: Layout, servers: str | None, config: Mapping[str, str] | None) -> Line | None:
        """Start the thread that asks Kafka; None without an address. It ends with the loop, even while an answer is
        missing.
        """
        from zkcoord.kafka.metadata import answering

        if not servers and layout.mirrored:
            raise UsageError("topics from Kafka need its address: give --bootstrap-servers HOST:PORT[,HOST:PORT…]")
        if not servers:
            return None
        answer = answering(servers, config, at_once=layout.mirrored)
        line = Line("zkcoord-topics", {ASK: answer}, lambda done: self._driver.put(done), self._die)
        line.start()
        return line

    def _die(self, error: BaseException) -> None:
        self._driver.ask("abandon", error)

    def _fail(self, error: ZkcoordError) -> None:
        self._driver.ask("abandon", error)

    def _no_journal(self, why: str) -> None:
        emit_fields("journal_ended", {"why": why, "level": "warning"})

    def _event(self, name: str, fields: Mapping[str, Any]) -> None:
        emit_fields(name, fields)
        if name == "elected" and self._on_serving is not None:
            self._on_serving(fields["coordinator"], fields["epoch"])


def _standing(coordinator_id: int | None, layout: Layout, assignors: Iterable[str]) -> dict[str, Any]:
    """Return the fields of Election that this program sets."""
    made = partial(first_revision_writes, layout_name=layout.name, tree_id=new_tree_id(), topics=layout.source)
    return {
        "wanted_id": coordinator_id,
        "description": _description(assignors),
        "first_reads": first_revision_reads(layout.name),
        "first_writes": made,
        "revisions": served(),
    }


def _no_assignor(name: str, why: str) -> None:
    emit_fields("assignor_missing", {"assignor": name, "why": why, "level": "warning"})


def _description(assignors: Iterable[str]) -> bytes:
    """Return the data of a candidate's node, which describes its process. `assignors`: the names of those that it
    has."""
    version = settings.version()
    since = datetime.now(UTC).isoformat(timespec="seconds")
    process = {"host": socket.gethostname(), "pid": os.getpid(), "version": version, "since": since}
    return encode_candidate(process, PROTOCOLS, assignors)
