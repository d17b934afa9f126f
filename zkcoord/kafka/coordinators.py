"""Questions to the coordinators of groups in Kafka, through admin clients of librdkafka's that ask nothing else.

librdkafka 2.16 aborts the process when the time of such a request ends there and its coordinator can be reached later
(issue 4605). So librdkafka never ends one: the time is kept here, and an admin client with a request that is still open
is ended, by the thread that asked. (If it went with its last reference, that might be on a thread of librdkafka's own,
where Python's garbage collection runs, too: librdkafka aborts then as well.)

It also dies when a broker answers the question for a group's offsets that it is not the group's coordinator (issue
5040), as after the end of a broker, or the first time that anybody asks for a group. So a broker is asked for the group
itself before, which librdkafka takes whatever the answer is, and for its offsets only once it has answered as the
group's coordinator: at once, and the same broker (see AT_ONCE_MAX). A coordinator that moves between these two is the
one case left.

What is answered counts once it is known to be of the cluster that answered first (`SameCluster`), and nothing is
deleted before that.
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
LOST = {"_TRANSPORT"}  # a connection: the question may have been carried out
COORDINATORS = {"", "GROUP_ID_NOT_FOUND", "TOPIC_AUTHORIZATION_FAILED"}
"""What only a coordinator says of a group: a description, that it has no members, or not of which topics they read."""

NEVER_SECONDS = 3_600.0
"""So long librdkafka itself would wait: its maximum. Nobody waits for so long here."""

PAUSE_SECONDS = 0.1
"""Until a group is asked for again whose broker was not its coordinator, or not yet."""

AT_ONCE_MAX = 10
"""Groups that are asked for through one client at once: librdkafka remembers the coordinators of eleven. Those of more
are looked up before each question, and who is asked where they are may answer otherwise."""

SLOW_SECONDS = 1.0
"""Groups that still wait are asked for through another client when nobody has answered for so long."""

GROUPS_TOPIC = "__consumer_offsets"  # it is there wherever a group has a coordinator

Answers = dict[str, "Future[Any]"]


class _Client:
    """An AdminClient, and whether its answers are in doubt."""

    def __init__(self, opens: Callable[[Callable[[], None]], Any], same: SameCluster) -> None:
        self.same, self.admin = same, opens(same.doubt)


class Coordinators:
    """The coordinators of a cluster's groups. Safe for several threads."""

    def __init__(
        self,
        module: Any,
        opens: Callable[[Callable[[], None]], Any],
        servers: str,
        config: Mapping[str, Any] | None = None,
        known: Callable[[], str | None] | None = None,
    ) -> None:
        """`module`: confluent_kafka, with its `admin`; `opens` returns a new AdminClient, which calls what it is given
        when a connection has ended. The rest is as of a `SameCluster`."""
        self._module, self._opens, self._servers, self._config = module, opens, servers, config
        self._cluster = SameCluster(servers, config, known)  # what all clients have been told
        self._idle: list[_Client] = []  # in which every question was answered, by the coordinators
        self._closed = False

    def ask(self, question: str, groups: Mapping[str, Any], seconds: float) -> Answers:
        """Return what has an answer within this time. The rest is given up: it may still have been done.

        `question`: a method of AdminClient; `groups`: each group, as that method takes it. UsageError for what these
        brokers are known to be too old for, and if they are of another cluster. A group that nobody answers for delays
        no other.
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
        """True if what this client was told until now is of the cluster: as a rule that is known at once. False while
        nobody tells its id; UsageError if it is another one."""

        def ask() -> str | None:
            try:
                told = ask_cluster(client.admin, GROUPS_TOPIC, max(LAST_SECONDS, end - time.monotonic()))
            except self._module.KafkaException as error:
                raise translate(error.args[0], self._servers, "tell its cluster's id") from error
            self._cluster.hear(told)
            return told

        client.admin.poll(0)  # tells of connections that have ended
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
        client.admin.poll(0)  # serves its error_cb: it tells why nobody answered
        if fit:
            self._idle.append(client)
        else:
            end_client(client.admin)
        if self._closed:
            self.close()

    def close(self) -> None:
        """End connections and threads: now, or when the question that is under way ends. Idempotent."""
        self._closed = True
        while self._idle:
            end_client(self._idle.pop().admin)


class _Open(NamedTuple):
    """A request that has no answer yet."""

    group: str
    admin: Any
    question: str


class _Asking:
    """One question about groups. `told`: the last answer about each.

    Invariant: a group waits, or a request about it is open, or its answer stands.
    """

    def __init__(self, question: str, groups: Mapping[str, Any]) -> None:
        self._question, self._groups = question, groups
        self._first = DESCRIBES if question == TELLS_OFFSETS else question
        self._again = ELSEWHERE if question == DELETES else ELSEWHERE | LOST
        self._open: dict[Future[Any], _Open] = {}
        self._misleading: list[Any] = []  # clients whose coordinator of a group was none
        self.source: dict[str, Any] = {}  # group -> the client through which a broker has answered; None: none has
        self.waiting, self.told = list(groups), Answers()

    @property
    def unfit(self) -> list[Any]:
        """Clients that must not be asked any more."""
        return [*self._misleading, *(each.admin for each in self._open.values())]

    def ask(self, admin: Any, end: float) -> None:
        """Ask for the groups that wait, and take in the answers of earlier clients, too, until another client must be
        asked for those that wait then, or none waits and no request is open. `end`: by the monotonic clock."""
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
        """Return the answer's group if it must be asked for again."""
        group, admin, question = self._open.pop(answer)
        said = _error(answer)
        if said in COORDINATORS and question != self._question:
            self._send(admin, self._question, group)
            return []
        self.told[group] = answer
        self.source[group] = None if said.startswith("_") else admin  # librdkafka's own errors begin so
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
