"""Questions to the coordinators of groups in Kafka, each with an admin client of librdkafka's for itself.

librdkafka 2.16 aborts the process when the time of such a request ends there and its coordinator can be reached later
(issue 4605). So librdkafka never ends one: the time is kept here, and an admin client with a request that is still open
is ended, by the thread that asked. (If it went with its last reference, that might be on a thread of librdkafka's own,
where Python's garbage collection runs, too: librdkafka aborts then as well.)

It also dies when a broker answers the question for a group's offsets that it is not the group's coordinator (issue
5040), as after the end of a broker, or the first time that anybody asks for a group. So a broker is asked for the group
itself before, which librdkafka takes whatever the answer is, and for its offsets only if it is the coordinator.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import Any

from zkcoord.errors import UsageError
from zkcoord.kafka.old_brokers import check_deletes_groups

DELETES, DESCRIBES, TELLS_OFFSETS = "delete_consumer_groups", "describe_consumer_groups", "list_consumer_group_offsets"
ELSEWHERE = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
NEVER_SECONDS = 3_600.0
"""So long librdkafka itself would wait: its maximum. Nobody waits for so long here."""

CLOSE_SECONDS = 1.0
"""The end of connections is waited for. librdkafka may need longer, as while it looks up the name of a broker."""

PAUSE_SECONDS = 0.1
"""Until a broker is asked again that was not the coordinator, or not yet."""

Answers = dict[str, "Future[Any]"]


class Coordinators:
    """The coordinators of a cluster's groups. Safe for several threads."""

    def __init__(self, module: Any, opens: Callable[[], Any]) -> None:
        """`module`: confluent_kafka, with its `admin`; `opens` returns a new AdminClient."""
        self._module, self._opens = module, opens
        self._idle: list[Any] = []  # AdminClients in which every question was answered
        self._closed = False

    def ask(self, question: str, groups: Mapping[str, Any], seconds: float) -> dict[str, Future[Any]]:
        """Return what has an answer within this time. The rest is given up: it may still have been done.

        `question`: a method of AdminClient; `groups`: each group, as that method takes it. UsageError for what these
        brokers are known to be too old for.
        """
        end, told = time.monotonic() + seconds, Answers()
        while True:
            told |= self._ask_once(question, groups, end)
            groups = {group: groups[group] for group in groups if group in told and _is_elsewhere(told[group])}
            if question != TELLS_OFFSETS or not groups or time.monotonic() + PAUSE_SECONDS >= end:
                return told
            time.sleep(PAUSE_SECONDS)

    def _ask_once(self, question: str, groups: Mapping[str, Any], end: float) -> Answers:
        """Ask once, with a client that goes on only if it has no open question and knew the coordinators."""
        if self._closed:
            raise UsageError("this Kafka client is closed; open another")
        try:
            admin = self._idle.pop()
        except IndexError:
            admin = self._opens()
        if question == DELETES:
            check_deletes_groups(self._module, admin, max(0.0, end - time.monotonic()))
        told, elsewhere = Answers(), Answers()
        try:
            asked = groups
            if question == TELLS_OFFSETS:
                described = _answers(admin, DESCRIBES, {group: group for group in groups}, end)
                elsewhere = {group: answer for group, answer in described.items() if _is_elsewhere(answer)}
                asked = {group: groups[group] for group in described if group not in elsewhere}
            told = _answers(admin, question, asked, end)
            admin.poll(0)  # serves its error_cb: it tells why nobody answered
        finally:
            if told.keys() == groups.keys():
                self._idle.append(admin)
            else:
                _end(admin)
            if self._closed:
                self.close()
        return told | elsewhere

    def close(self) -> None:
        """End connections and threads: now, or when the question that is under way ends. Idempotent."""
        self._closed = True
        while self._idle:
            _end(self._idle.pop())


def _answers(admin: Any, question: str, groups: Mapping[str, Any], end: float) -> Answers:
    """What has an answer until then, by the monotonic clock, in seconds."""
    asks, futures = getattr(admin, question), Answers()
    for asked in groups.values():
        futures |= asks([asked], request_timeout=NEVER_SECONDS)
    answered, _ = wait(futures.values(), max(0.0, end - time.monotonic()))
    return {group: future for group, future in futures.items() if future in answered}


def _is_elsewhere(answer: Future[Any]) -> bool:
    error = answer.exception()
    return error is not None and bool(error.args) and getattr(error.args[0], "name", str)() in ELSEWHERE


def _end(admin: Any) -> None:
    ends = getattr(admin, "__exit__", None)  # before confluent-kafka 2.13 only its last reference ends a client
    if ends is not None:
        ending = threading.Thread(target=ends, args=(None, None, None), name="zkcoord-kafka-close", daemon=True)
        ending.start()
        ending.join(CLOSE_SECONDS)
