"""The state that checkers know: each applied transaction in the words of the protocol, from the znodes alone.

Nothing of the product is used here: paths and JSON are written and read by separate code (docs/protocol.md, sections 2
and 3).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

from tests.sim.places import CHANNEL, COMMAND, EVICTED, MARK, OWNER, REGISTRATION, STATE, Place, held_by, place_of
from tests.sim.zookeeper import Change, Ensemble, Session, Txn
from zkcoord.core.model import TopicPartition
from zkcoord.tree.writes import CheckNode, SetNode

EPOCH = "/zkcoord/epoch"
COORDINATOR = "/consumers/coordinator"
STOP, START = "stop-fetcher", "start-fetcher"


class Command(NamedTuple):
    """One command in a channel. `partitions` None: all partitions (a stop without a map)."""

    group: str
    consumer: str
    sequence: str
    option: str
    partitions: frozenset[TopicPartition] | None
    understood: bool  # False: its consumer refused it, or it cannot be parsed here

    def overlaps(self, other: Command) -> bool:
        """True when both commands name one partition (pings and the like name none)."""
        if self.option not in (STOP, START) or other.option not in (STOP, START):
            return False
        if self.partitions is None or other.partitions is None:
            return True
        return not self.partitions.isdisjoint(other.partitions)


class Registration(NamedTuple):
    """A member: its session and what it registered."""

    session: Session
    text: dict[str, Any]
    since_ms: int


class Gone(NamedTuple):
    """How a registration ended: expire, close, evicted (by a coordinator), removed (by an operator), deleted (by its
    own session)."""

    time_ms: int
    how: str
    timeout_ms: int
    session: Session
    fenced: bool  # True: its writes check its registration, so it knows more than the draft

    @property
    def client(self) -> str:
        """The client that had the registration."""
        return self.session.client


class Holding(NamedTuple):
    """A consumer that holds a partition: from the multi that acknowledges its start to the multi that releases it."""

    consumer: str
    client: str


class Value(NamedTuple):
    """The change of one owner or offset. None stands for a missing node."""

    group: str
    partition: TopicPartition
    before: str | None
    after: str | None


@dataclass(slots=True)
class Facts:
    """One transaction in the words of the protocol."""

    txn: Txn
    session: Session
    made_commands: list[Command] = field(default_factory=list)
    gone_commands: list[Command] = field(default_factory=list)
    registered: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    unregistered: list[tuple[str, str]] = field(default_factory=list)
    owners: list[Value] = field(default_factory=list)
    offsets: list[Value] = field(default_factory=list)
    marks: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)  # group, topic, texts
    channels_gone: list[tuple[str, str]] = field(default_factory=list)
    statuses: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)  # new ones: group, consumer, status
    evicted_marks: list[tuple[str, str]] = field(default_factory=list)
    records: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)  # group, before, after
    states: list[tuple[str, dict[str, Any], dict[str, Any]]] = field(default_factory=list)
    epoch_raised: bool = False

    def held(self) -> tuple[bool, ...]:
        """For each of `LISTS`, whether it has an entry."""
        return tuple(map(bool, _IN_LISTS(self)))

    def checks(self, path: str) -> bool:
        """True when the transaction is fenced by a node's version (a check that the node merely exists does not
        count)."""
        return any(type(w) in (CheckNode, SetNode) and w.path == path and w.version >= 0 for w in self.txn.writes)  # type: ignore[union-attr]

    def checks_exists(self, path: str) -> bool:
        """True when the transaction checks that a node exists."""
        return any(type(w) is CheckNode and w.path == path for w in self.txn.writes)


LISTS = ("made_commands", "gone_commands", "owners", "offsets", "marks", "records", "states")
"""The facts by which checkers are chosen."""

_IN_LISTS = attrgetter(*LISTS)


def consumer_of(thread: str) -> str:
    """The consumer in an owner's text. A leading `!` marks the acknowledged stop of a member that knows only the
    draft."""
    return thread.lstrip("!").rpartition("-")[0]


def parse_json(data: bytes) -> dict[str, Any]:
    """A JSON object, or an empty one."""
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


parsed = lru_cache(maxsize=1_000)(parse_json)
"""The same for checkers, which ask for what stands in a node again and again; what it returns must not be changed."""


def parse_command(group: str, consumer: str, sequence: str, data: bytes) -> Command:
    """A command's znode."""
    text = parsed(data)
    understood = bool(text) and "error" not in text
    named = text.get("ownershipMap")
    partitions = None
    if isinstance(named, dict):
        partitions = frozenset(TopicPartition(k.rpartition("-")[0], int(k.rpartition("-")[2])) for k in named)
    return Command(group, consumer, sequence, str(text.get("option", "")), partitions, understood)


class Field:
    """The present state, by the transactions applied so far."""

    def __init__(self, ensemble: Ensemble, *, claims: bool = False) -> None:
        self.ensemble = ensemble
        self.claims = claims  # the layout `legacy`: owners are the ephemeral nodes of their consumers
        self.thefts: dict[tuple[str, TopicPartition, str], int] = {}  # when somebody deleted the claim of this client
        self.registrations: dict[tuple[str, str], Registration] = {}
        self.gone: dict[tuple[str, str], Gone] = {}
        self.commands: dict[tuple[str, str], dict[str, Command]] = {}
        self.owners: dict[tuple[str, TopicPartition], str] = {}
        self.offsets: dict[tuple[str, TopicPartition], int] = {}
        self.holdings: dict[tuple[str, TopicPartition], Holding] = {}
        self.channels: set[tuple[str, str]] = set()
        self.evicted: dict[tuple[str, str], int] = {}  # when the mark of the eviction was made
        self.epoch_session: Session | None = None
        self.incarnations: dict[tuple[str, str], int] = {}  # the highest number that a topic's mark ever had
        # from the applications' journal
        self.covered: dict[tuple[str, TopicPartition], int] = {}  # processed without a gap up to this offset
        self.resolved: dict[tuple[str, TopicPartition], set[int]] = {}  # from reset policies, until one is written
        self.repairs: Counter[tuple[str, TopicPartition]] = Counter()  # resets of positions behind the log's end
        self.may_go_back: set[tuple[str, TopicPartition]] = set()  # partitions whose offset a repair may lower
        self.left_behind: dict[tuple[str, TopicPartition], set[int]] = {}  # committed at a repair, and still committed
        self.removed: set[tuple[str, TopicPartition]] = set()  # an operator removed the offset; until one is written
        self.strangers: dict[tuple[str, TopicPartition], set[int]] = {}  # others' commits to Kafka that may be followed

    def read(self, txn: Txn) -> Facts:
        """The facts of a transaction; the field is still in the state before it."""
        facts = Facts(txn, txn.session)
        for path, before, after in _net(txn.changes) if self.claims else txn.changes:
            place = place_of(path)
            if place is not None:
                self._read_group(facts, place, before and before.data, after and after.data)
            elif path == EPOCH:
                facts.epoch_raised = facts.epoch_raised or before is not None
        return facts

    def _read_group(self, facts: Facts, place: Place, before: bytes | None, after: bytes | None) -> None:
        kind, group, name, item, partition = place
        if partition is not None:
            values = facts.owners if kind == OWNER else facts.offsets
            values.append(Value(group, partition, _text(before), _text(after)))
        elif kind == COMMAND:
            if before is not None:
                facts.gone_commands.append(parse_command(group, name, item, before))
            if after is not None:
                facts.made_commands.append(parse_command(group, name, item, after))
        elif kind == REGISTRATION:
            if before is None:
                facts.registered.append((group, name, parsed(after or b"")))
            elif after is None:
                facts.unregistered.append((group, name))
        elif kind == CHANNEL:
            if after is None:
                facts.channels_gone.append((group, name))
            elif before is None:
                self.channels.add((group, name))
            elif not self.claims and self.owned_by(facts.session, group, name):
                facts.statuses.append((group, name, parsed(after)))
        elif kind == EVICTED:
            if before is None:
                facts.evicted_marks.append((group, name))
        elif kind == MARK:
            facts.marks.append((group, name, parsed(before or b""), parsed(after or b"")))
        else:
            (facts.states if kind == STATE else facts.records).append(
                (group, parsed(before or b""), parsed(after or b""))
            )

    def take(self, facts: Facts) -> None:
        """Apply the transaction to the field."""
        txn = facts.txn
        if facts.epoch_raised:
            self.epoch_session = facts.session
        for group, consumer, text in facts.registered:
            self.registrations[group, consumer] = Registration(facts.session, text, txn.time_ms)
        for value in facts.owners:
            self._take_owner(value, facts)
        for command in facts.gone_commands:
            self.commands.get((command.group, command.consumer), {}).pop(command.sequence, None)
            self._take_acknowledged(command, facts)
        for group, consumer, status in facts.statuses:
            self._take_status(group, consumer, status)
        for command in facts.made_commands:
            self.commands.setdefault((command.group, command.consumer), {})[command.sequence] = command
        for key in facts.unregistered:
            registration = self.registrations.pop(key, None)
            if registration is not None:
                own = registration.session is facts.session
                by = "deleted" if own else "removed" if facts.session is self.ensemble.operator else "evicted"
                how = by if txn.kind == "multi" else txn.kind
                session, text = registration.session, registration.text
                timeout_ms = int(text.get("session_timeout_ms", session.timeout_ms))  # the timeout that was registered
                self.gone[key] = Gone(txn.time_ms, how, timeout_ms, session, "coordination" in text)
        for key in facts.channels_gone:
            self.channels.discard(key)
            self.commands.pop(key, None)
            self.evicted.pop(key, None)
        for key in facts.evicted_marks:
            self.evicted[key] = txn.time_ms
        for group, topic, _, mark in facts.marks:
            known = self.incarnations.get((group, topic), 0)
            self.incarnations[group, topic] = max(known, int(mark.get("incarnation", 0)))
            if not mark and facts.session is self.ensemble.operator:  # an old tool did this, against all rules
                del self.incarnations[group, topic]
        for group, _, state in facts.states:
            if not state:  # the group was removed with all its state
                self.incarnations = {key: number for key, number in self.incarnations.items() if key[0] != group}
        for value in facts.offsets:
            self._take_offset(value, reset=facts.session is self.ensemble.operator)

    def registration(self, group: str, consumer: str) -> str:
        """The path of a registration."""
        return f"/consumers/{'' if self.claims else 'groups/'}{group}/ids/{consumer}"

    def mark(self, group: str, topic: str) -> str:
        """The path of a topic's mark."""
        if self.claims:
            return f"/zkcoord/groups/{group}/state/marks/{topic}"
        return f"/consumers/groups/{group}/owners/{topic}"

    def channel(self, group: str, consumer: str) -> str:
        """The path of a channel."""
        return (
            f"/zkcoord/channels/{group}/{consumer}" if self.claims else f"/consumers/groups/{group}/channel/{consumer}"
        )

    def owned_by(self, session: Session, group: str, consumer: str) -> bool:
        """True when the registration stands and was made by this session."""
        registration = self.registrations.get((group, consumer))
        return registration is not None and registration.session is session

    def former(self, group: str, partition: TopicPartition) -> str | None:
        """The thread that claims the partition, or else a thread of the consumer that held it last."""
        holding = self.holdings.get((group, partition))
        return self.owners.get((group, partition)) or (holding and f"{holding.consumer}-0")

    def stolen_ms(self, group: str, partition: TopicPartition, client: str, now_ms: int) -> int | None:
        """The time at which somebody deleted this client's claim; None if it is longer ago than the client's session
        timeout."""
        stolen_ms = self.thefts.get((group, partition, client)) if self.thefts else None
        if stolen_ms is None:
            return None
        timeouts_ms = [r.session.timeout_ms for r in self.registrations.values() if r.session.client == client]
        timeouts_ms += [gone.timeout_ms for gone in self.gone.values() if gone.client == client]
        return stolen_ms if now_ms <= stolen_ms + max(timeouts_ms, default=0) else None

    def _take_owner(self, value: Value, facts: Facts) -> None:
        key = value.group, value.partition
        if value.after:
            self.owners[key] = value.after
        else:
            self.owners.pop(key, None)
            holding = self.holdings.get(key)
            if holding is None or (self.claims and facts.txn.kind != "multi"):
                return  # claims end with their session
            if self.owned_by(facts.session, value.group, holding.consumer):
                del self.holdings[key]
            elif self.claims:  # its consumer may read until it sees the deletion
                del self.holdings[key]
                self.thefts[value.group, value.partition, holding.client] = facts.txn.time_ms

    def _take_acknowledged(self, command: Command, facts: Facts) -> None:
        if command.option == STOP and self.owned_by(facts.session, command.group, command.consumer):
            for partition in command.partitions or ():  # no release if draft-only, or not the owner
                key = command.group, partition
                owner, holding = self.owners.get(key, ""), self.holdings.get(key)
                released = owner.startswith("!") or consumer_of(owner) != command.consumer
                if holding is not None and holding.consumer == command.consumer and released:
                    del self.holdings[key]
        if command.option != START or not self.owned_by(facts.session, command.group, command.consumer):
            return
        if any(command[:3] == made[:3] for made in facts.made_commands):
            return  # the start was refused as a whole: its node exists again, with the error
        own = (command.group, command.consumer)
        said = {p for (*of, status) in facts.statuses if tuple(of) == own for p in held_by(status)}
        for partition in command.partitions or ():
            key = command.group, partition
            owner = consumer_of(self.owners.get(key, ""))  # if it is no member, somebody edited the owner
            edited = not self.claims and (command.group, owner) not in self.registrations
            if owner == command.consumer or (edited and partition in said):
                self.holdings[key] = Holding(command.consumer, facts.session.client)
                self.thefts.pop((*key, facts.session.client), None)

    def _take_status(self, group: str, consumer: str, status: dict[str, Any]) -> None:
        """A partition whose owner somebody edited is released when its member's status no longer names it."""
        said = None
        for key, holding in list(self.holdings.items()) if "held" in status else ():
            if holding.consumer == consumer and key[0] == group and consumer_of(self.owners.get(key, "")) != consumer:
                said = held_by(status) if said is None else said
                if key[1] not in said:
                    del self.holdings[key]

    def _take_offset(self, value: Value, *, reset: bool) -> None:
        key = value.group, value.partition
        if value.after is None:  # removed with its topic, with its group, or by an operator
            if reset:
                self.removed.add(key)
            self.may_go_back.discard(key)
            for known in (self.offsets, self.covered, self.resolved, self.left_behind):
                known.pop(key, None)
        elif value.after.strip().isdigit():
            self.offsets[key] = int(value.after)
            self.removed.discard(key)
            self.resolved.pop(key, None)
            self.may_go_back.discard(key)
            self.committed(key, self.offsets[key])
            if reset or key not in self.covered:
                self.covered[key] = self.offsets[key]

    def committed(self, key: tuple[str, TopicPartition], offset: int) -> None:
        """An offset was committed. If it is another one than a repair left behind, that offset does not count as left
        behind any more."""
        if offset not in self.left_behind.get(key, ()):
            self.left_behind.pop(key, None)


def grants(facts: Facts, field: Field) -> list[Value]:
    """The partitions that a coordinator grants: by their owners or, where owners are claims, by its starts."""
    if not field.claims:
        return [v for v in facts.owners if v.after and not v.after.startswith("!") and v.after != v.before]
    rewritten = {tuple(command[:3]) for command in facts.gone_commands}  # by the consumer that refuses the command
    starts = [c for c in facts.made_commands if c.option == START and tuple(c[:3]) not in rewritten]
    return [
        Value(c.group, partition, field.former(c.group, partition), f"{c.consumer}-0")
        for c in starts
        for partition in sorted(c.partitions or ())
    ]


def _net(changes: Iterable[Change]) -> list[tuple[str, Any, Any]]:
    """Each path's first and last state in a transaction: a claim is created and then set, and some nodes are created
    and deleted only to see that they are missing."""
    first: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for path, before, after in changes:
        first.setdefault(path, before)
        last[path] = after
    return [(path, first[path], last[path]) for path in first if first[path] is not None or last[path] is not None]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
