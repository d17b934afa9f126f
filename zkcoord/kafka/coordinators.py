"""Asks the coordinators of groups in Kafka, through admin clients of librdkafka that ask nothing else.

librdkafka 2.16 aborts the process if such a request times out inside librdkafka and its coordinator can be reached
later (issue 4605). So librdkafka never times one out: this module keeps the time, and an admin client with an open
request is ended by the thread that asked. (If its last reference ended it, that might happen on a thread of librdkafka,
where Python's garbage collection also runs: librdkafka aborts then, too.)

It also aborts if a broker answers the question for a group's offsets that it is not the group's coordinator (issue
5040). That happens after a broker's end, or the first time that anybody asks for a group. So a broker is first asked
for the group itself, where librdkafka accepts any answer. It is asked for the offsets only once it has answered as the
group's coordinator: right after that, and the same broker (see AT_ONCE_MAX). The case that is left is a coordinator
that moves between these two questions.

An answer counts once it is known to come from the cluster that answered first (`SameCluster`), and nothing is deleted
before that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple

from zkcoord.errors import UnavailableError, UsageError
from zkcoord.kafka.errors import translate
from zkcoord.kafka.old_brokers import check_deletes_groups
from zkcoord.kafka.renewed import end_client
from zkcoord.kafka.same_cluster import LAST_SECONDS, SameCluster, ask_cluster

DELETES, DESCRIBES, TELLS_OFFSETS = "delete_consumer_groups", "describe_consumer_groups", "list_consumer_group_offsets"
ELSEWHERE = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
LOST = {"_TRANSPORT"}  # a broken connection: the request may have been carried out
COORDINATORS = {"", "GROUP_ID_NOT_FOUND", "TOPIC_AUTHORIZATION_FAILED"}
"""Answers that only a coordinator gives about a group: a description, that it has no members, or that the user may not
see its topics."""

NEVER_SECONDS = 3_600.0
"""s that librdkafka itself would wait: its maximum. Nobody here waits that long."""

PAUSE_SECONDS = 0.1
"""s until a group is asked for again whose broker was not its coordinator, or not yet."""

AT_ONCE_MAX = 10
"""Number of groups that are asked for through one client at once: librdkafka remembers eleven coordinators. With more
groups it looks coordinators up before each question, and that look-up may give another answer."""

SLOW_SECONDS = 1.0
"""s without an answer after which waiting groups are asked for through another client."""

GROUPS_TOPIC = "__consumer_offsets"  # it exists wherever a group has a coordinator

Answers = dict[str, "Future[Any]"]


class _Client:
    """An AdminClient, and whether its answers are in doubt."""

    def __init__(self, opens: Callable[[Callable[[], None]], Any], same: SameCluster) -> None:
        self.same, self.admin = same, opens(same.doubt)


class Coordinators:
    """The coordinators of a cluster's groups. Several threads may use it."""

    def __init__(
        self,
        module: Any,
        opens: Callable[[Callable[[], None]], Any],
        servers: str,
        config: Mapping[str, Any] | None = None,
        known: Callable[[], str | None] | None = None,
    ) -> None:
        """`module` is confluent_kafka with its `admin`. `opens` returns a new AdminClient, which calls its argument
        after the end of a connection. The other arguments are those of a `SameCluster`."""
        self._module, self._opens, self._servers, self._config = module, opens, servers, config
        self._cluster = SameCluster(servers, config, known)  # what all clients have been told
        self._idle: list[_Client] = []  # those in which the coordinators answered every question
        self._closed = False

    def ask(self, question: str, groups: Mapping[str, Any], seconds: float) -> Answers:
        """Return the answers that come within this time. Requests without an answer are given up; they may still have
        been carried out.

        `question` is a method of AdminClient. `groups` maps each group to that method's argument for it. Raises
        UsageError for a question for which the brokers are known to be too old, and if they belong to another cluster.
        A group without an answer delays no other one.
        """
        end, asking = time.monotonic() + seconds, _Asking(question, groups)
        clients = list[_Client]()
        try:
            while asking.waiting and time.monotonic() < end:
                clients.append(self._client())
                if question == DELETES:
                    check_deletes_groups(self._module, clients[-1].admin, max(0.0, end - time.monotonic()))
                    if not self._is_sure(clients[-1], end):
                        break
                asking.ask(clients[-1].admin, end)
            heard = [client for client in clients if client.admin in asking.source.values()]
            unsure = [client.admin for client in heard if not self._is_sure(client, end)]
        finally:
            for client in clients:
                self._done(client, fit=client.admin not in asking.unfit)
        return {group: answer for group, answer in asking.told.items() if asking.source[group] not in unsure}

    def _is_sure(self, client: _Client, end: float) -> bool:
        """True if the answers to this client until now are known to come from the cluster, as is usual without a
        question. False while nobody tells the cluster's id. Raises UsageError if it is another cluster."""

        def ask() -> str | None:
            try:
                told = ask_cluster(client.admin, GROUPS_TOPIC, max(LAST_SECONDS, end - time.monotonic()))
            except self._module.KafkaException as error:
                raise translate(error.args[0], self._servers, "tell its cluster's id") from error
            self._cluster.hear(told)
            return told

        client.admin.poll(0)  # reports connections that have ended
        try:
            client.same.confirm(ask)
        except UnavailableError:
            return False
        return True

    def _client(self) -> _Client:
        if self._closed:
            raise UsageError("this Kafka client is closed; open another")
        try:
            return self._idle.pop()
        except IndexError:
            return _Client(self._opens, SameCluster(self._servers, self._config))

    def _done(self, client: _Client, *, fit: bool) -> None:
        client.admin.poll(0)  # calls its error_cb, which tells why nobody answered
        if fit:
            self._idle.append(client)
        else:
            end_client(client.admin)
        if self._closed:
            self.close()

    def close(self) -> None:
        """End connections and threads: now, or when the question under way ends. Idempotent."""
        self._closed = True
        while self._idle:
            end_client(self._idle.pop().admin)


class _Open(NamedTuple):
    """A request that has no answer yet."""

    group: str
    admin: Any
    question: str


class _Asking:
    """One question about groups. `told` holds the last answer about each.

    Invariant: for each group, it waits, or a request about it is open, or its answer is in `told`.
    """

    def __init__(self, question: str, groups: Mapping[str, Any]) -> None:
        self._question, self._groups = question, groups
        self._first = DESCRIBES if question == TELLS_OFFSETS else question
        self._again = ELSEWHERE if question == DELETES else ELSEWHERE | LOST
        self._open: dict[Future[Any], _Open] = {}
        self._misleading: list[Any] = []
        # clients that named a broker as coordinator of a group that it does not coordinate
        self.source: dict[str, Any] = {}  # group -> the client through which a broker has answered; None: no broker has
        self.waiting, self.told = list(groups), Answers()

    @property
    def unfit(self) -> list[Any]:
        """Clients that must not be asked any more."""
        return [*self._misleading, *(each.admin for each in self._open.values())]

    def ask(self, admin: Any, end: float) -> None:
        """Ask for the groups that wait, and take in answers of earlier clients, too. It ends when another client must
        be asked for the groups that still wait, or when no group waits and no request is open. `end` is a time of the
        monotonic clock."""
        misled, heard = list[str](), time.monotonic()
        while True:
            free = AT_ONCE_MAX - sum(each.admin is admin for each in self._open.values())
            for group in self.waiting[:free]:
                self._send(admin, self._first, group)
            del self.waiting[:free]
            patience = PAUSE_SECONDS if misled else SLOW_SECONDS
            until = min(end, heard + patience) if misled or self.waiting else end
            left = until - time.monotonic()
            if left <= 0 or not (self._open or misled):
                break
            if not self._open:
                time.sleep(left)
            for answer in wait(self._open.keys(), left, FIRST_COMPLETED).done:
                if not misled:
                    heard = time.monotonic()
                misled += self._take_in(answer)
        self.waiting = misled + self.waiting

    def _take_in(self, answer: Future[Any]) -> list[str]:
        """Take in an answer. Return its group if it must be asked for again."""
        group, admin, question = self._open.pop(answer)
        said = _error(answer)
        if said in COORDINATORS and question != self._question:
            self._send(admin, self._question, group)
            return []
        self.told[group] = answer
        # the names of librdkafka's own errors begin with it
        self.source[group] = None if said.startswith("_") else admin
        if said not in self._again:
            return []
        self._misleading.append(admin)
        return [group]

    def _send(self, admin: Any, question: str, group: str) -> None:
        asked = self._groups[group] if question == self._question else group
        (answer,) = getattr(admin, question)([asked], request_timeout=NEVER_SECONDS).values()
        self._open[answer] = _Open(group, admin, question)


def _error(answer: Future[Any]) -> str:
    """The name of Kafka's error; "" if there is none."""
    error = answer.exception()
    if error is None:
        return ""
    name = getattr(error.args[0], "name", None) if error.args else None
    return type(error).__name__ if name is None else str(name())
