"""What a consumer works with during one registration: its channel as read, its holdings, its writes and its calls.

A new registration is a new session; nothing of the earlier one is carried over, except by being read from the tree.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import count
from typing import Any

from zkcoord.core.command import Option
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import CorruptError
from zkcoord.member.owned_partitions import Lookup, OwnedPartitions
from zkcoord.shell.loop import Events, Loop
from zkcoord.shell.ports import Callbacks, CommitDone
from zkcoord.tree.command import decode_command
from zkcoord.tree.member import Acknowledgement, Held, MemberPaths
from zkcoord.tree.paths import EVICTED_MARK, REFUSED_MARK, is_sequence, sequence_name
from zkcoord.tree.snapshot import Kind, Node
from zkcoord.tree.writes import Transaction

WRITE = "write"  # the tag and lane of this consumer's multis
CHANNEL = "channel"  # the scope of the own registration, channel and commands

CALLS_WAITING_MAX = 20
"""So many calls may wait for an application that hangs. Then its consumer neither registers again nor starts again what
it holds before some are answered: else each flap of the network would leave another start and another `lost`, for ever.
One that works has two or three, a slow one whose session was lost a few times some more."""

UNKNOWN_AGAIN_MS = 120_000
"""A partition that Kafka does not know is tried each half a minute at least (`core.ack_timeouts`): what comes later
than this has nothing to do with the last time."""


class Calls:
    """What the application was asked and has not answered yet, over all registrations of a consumer."""

    def __init__(self, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._tokens = count(1)
        self._starts = count(1)
        self._waiting: dict[int, str] = {}  # token -> name of the call

    def ask(self, name: str, argument: Any) -> int:
        """Make a call; the token of its answer."""
        token = next(self._tokens)
        self._waiting[token] = name
        self._callbacks.call(token, name, argument)
        return token

    def next_start(self) -> int:
        """A new number for a call `start`, over all registrations of this consumer."""
        return next(self._starts)

    def answered(self, token: int) -> None:
        """Every call is answered once."""
        self._waiting.pop(token, None)

    @property
    def reading(self) -> bool:
        """True while the application may still read what it was told to give up: a `lost` or `stop` has no answer."""
        return not {"lost", "stop"}.isdisjoint(self._waiting.values())

    @property
    def full(self) -> bool:
        """True while nothing may be begun that makes more calls."""
        return len(self._waiting) >= CALLS_WAITING_MAX


class MemberSession:
    """One registration's channel, holdings, writes and calls."""

    store_name = "zookeeper"  # where offsets are committed: this release has no other store

    def __init__(
        self,
        loop: Loop,
        paths: MemberPaths,
        asking: Calls,
        events: Events,
    ) -> None:
        self._loop, self._asking, self._events = loop, asking, events
        self.paths = paths
        self.holdings = OwnedPartitions()
        self.commands: dict[str, Node | None] = {}  # sequence -> the command as read, None: not yet
        self.calls: dict[int, str] = {}  # token -> who waits for the answer
        self._names: frozenset[str] = frozenset()  # children of the channel
        self._next = 0  # the number that the next command has
        self._ahead: Node | None = None  # that command, if it was read before the list showed it; it does not change
        self.status_version = 0  # as listed, and counted on with announcements, which do not change the list
        self._missing: set[str] = set()  # own registration and channel, when they were seen not to be there
        self._lookups: dict[str, Lookup] = {}
        self._unknown: dict[TopicPartition, tuple[int, int]] = {}  # to Kafka: first and last time that it was tried
        self._looked_up = (paths.layout.owners(paths.group), paths.layout.offsets(paths.group))  # all stands below
        self._writer = ""  # whose multis are under way; "" = nobody's
        self._outcomes: list[CommitDone] = []
        self._awaited = 0
        self.short_of_room = False  # in the status: what is left over there is to be looked up
        self.uncertain = False  # a commit's outcome is being looked up
        self.now_ms = 0
        self.leased = False  # the lease holds now

    # the channel

    def follow_channel(self) -> None:
        """Read and watch the own registration and channel from now on."""
        tracker = self._loop.tracker
        tracker.want(self.paths.registration, watch=True, scope=CHANNEL)
        tracker.want(self.paths.channel, Kind.CHILDREN, watch=True, scope=CHANNEL)
        self._look_ahead(0)

    def _look_ahead(self, number: int) -> None:
        """Have the next command read together with the list that shows it: nobody else numbers the nodes there."""
        self._next, self._ahead = number, None
        path = self.paths.command(sequence_name(number))
        self._loop.tracker.want_later(path, CHANNEL)
        self._loop.tracker.read_beside(self.paths.channel, Kind.CHILDREN, [path])

    def looked_up(self, nodes: Sequence[Node]) -> list[Node]:
        """Take answers in that somebody looked up, owners and offsets; returns the others."""
        for lookup in self._lookups.values():
            lookup.take(nodes)
        return [node for node in nodes if not node.path.startswith(self._looked_up)]

    def read(self, nodes: Sequence[Node]) -> None:
        """Take other answers in that came together: the list last, since a command may have come beside it."""
        paths, listed = self.paths, None
        for node in nodes:
            if node.path == paths.registration:
                self._note_missing(node)
            elif node.path == paths.channel:
                listed = node
            elif node.path.startswith(f"{paths.channel}/"):
                sequence = node.path[len(paths.channel) + 1 :]
                if sequence in self.commands:
                    self.commands[sequence] = node if node.exists else None
                elif sequence == sequence_name(self._next) and node.exists:
                    self._ahead = node
        if listed is not None:
            self._read_names(listed)

    def _read_names(self, node: Node) -> None:
        self._note_missing(node)
        self._names = frozenset(node.children)
        self.status_version = node.stat.version if node.stat else 0
        sequences = {name for name in node.children if is_sequence(name)}
        tracker = self._loop.tracker
        for gone in self.commands.keys() - sequences:
            del self.commands[gone]
            tracker.unwant(self.paths.command(gone))
        expected = sequence_name(self._next)
        for new in sorted(sequences - self.commands.keys()):
            self.commands[new] = self._ahead if new == expected else None
            if self.commands[new] is None:
                tracker.unwant(self.paths.command(new))  # as expected, but not read beside this list
                tracker.want(self.paths.command(new), scope=CHANNEL)
        made = (node.stat.child_changes + len(node.children)) // 2 if node.stat else 0  # here, ever
        if made != self._next:
            if expected not in sequences:
                tracker.unwant(self.paths.command(expected))
            self._look_ahead(made)

    def _note_missing(self, node: Node) -> None:
        (self._missing.discard if node.exists else self._missing.add)(node.path)

    @property
    def channel_clean(self) -> bool:
        """True when registration, channel and commands are read, and no write is under way."""
        return self._loop.settled and self._loop.tracker.clean(CHANNEL) and not self._writer

    @property
    def may_write(self) -> bool:
        """True when a task may send its multis: what they are decided from is read, and no commit is uncertain."""
        return self.channel_clean and not self.uncertain and self._loop.ready(WRITE, self.now_ms)

    @property
    def registration_gone(self) -> bool:
        """True once the own registration, or the channel, was seen to be gone, or the mark of an eviction to stand.

        None of these is ever taken back, so it counts whatever else is still to be read, or cannot be.
        """
        return bool(self._missing) or EVICTED_MARK in self._names

    @property
    def unregistered(self) -> bool:
        """True once the own registration itself was seen to be gone (an eviction removes it and leaves the mark)."""
        return self.paths.registration in self._missing or EVICTED_MARK in self._names

    @property
    def registration_stands(self) -> bool:
        """True while the own registration is seen to stand: it was read on the present link, behind the link's sync,
        and neither its watch nor a refusal of an own write says that it changed."""
        return not self.registration_gone and self._loop.tracker.watches(self.paths.registration)

    @property
    def refused_mark(self) -> bool:
        """True when the mark of a refused command stands."""
        return REFUSED_MARK in self._names

    def acknowledged(self, sequence: str) -> bool:
        """True when the command does not stand any more. Meaningful only while `channel_clean`."""
        return sequence not in self._names

    def granted(self) -> set[TopicPartition]:
        """What the starts that stand name. Each was free when it was written. Meaningful only while `channel_clean`."""
        found: set[TopicPartition] = set()
        for node in self.commands.values():
            try:
                command = decode_command(node.data) if node is not None else None
            except CorruptError:
                continue  # its refusal gives back what it names
            if command is not None and command.option is Option.START_FETCHER:
                found.update(command.ownership or ())
        return found

    def acknowledgement(self, sequences: Sequence[str], held: Mapping[TopicPartition, Held]) -> Acknowledgement:
        """The last writes of these commands, with the status once `held` is what is held.

        A command that is obeyed never changes: whether it still stands is seen in the list, it is not read again.
        """
        commands = self.commands
        for sequence in sequences:
            self._loop.tracker.unwant(self.paths.command(sequence))
        return Acknowledgement(
            commands={s: node.stat.version if (node := commands.get(s)) and node.stat else 0 for s in sequences},
            status=self.holdings.status(held, self.store_name),
            status_version=self.status_version,
        )

    def announced(self, ranges: Mapping[TopicPartition, tuple[int, int]]) -> None:
        """The multi that announced these has happened."""
        self.holdings.announced(ranges)
        self.status_version += 1
        self.event("announced", {"partitions": sorted(ranges), "level": "debug"})

    # reading, writing, calling

    def lookup(self, scope: str) -> Lookup:
        """Owner and offset nodes to be read, in place of what this scope looked up before."""
        if scope in self._lookups:
            self._lookups[scope].end()
        self._lookups[scope] = Lookup(self.paths, self._loop.tracker, scope)
        return self._lookups[scope]

    @property
    def writing(self) -> bool:
        """True while multis of this consumer have no outcome."""
        return bool(self._writer)

    def write(self, writer: str, transactions: list[Transaction]) -> None:
        """Send multis, in order; `written` answers once all of them have an outcome."""
        self._writer, self._awaited = writer, len(transactions)
        for transaction in transactions:
            self._loop.commit(transaction, WRITE, self.now_ms, WRITE)

    def written(self, done: CommitDone) -> tuple[str, list[CommitDone]] | None:
        """Collect an outcome; the writer and all outcomes, in order, when none is awaited any more."""
        self._outcomes.append(done)
        if len(self._outcomes) < self._awaited:
            return None
        answer = (self._writer, self._outcomes)
        self._writer, self._outcomes, self._awaited = "", [], 0
        return answer

    def call(self, name: str, argument: Any, waiting: str = "task") -> None:
        """Call the application; the answer goes to `waiting` (nobody waits for `lost` and `replay`)."""
        token = self._asking.ask(name, argument)
        if name not in ("lost", "replay"):
            self.calls[token] = waiting

    def call_start(
        self,
        offsets: Mapping[TopicPartition, int],
        incarnations: Mapping[TopicPartition, int],
        waiting: str = "task",
    ) -> int:
        """Have the application start these; what was announced from these offsets on comes first.

        Returns the number of the start.
        """
        starting = Starting(offsets, self._asking.next_start(), incarnations)
        replay = {p: (r.start, r.end) for p, r in sorted(self.holdings.batch.items()) if starting.get(p) == r.start}
        if replay:
            self.call("replay", replay)
        self.call("start", starting, waiting)
        return starting.number

    def unknown_for_ms(self, partition: TopicPartition) -> int:
        """Kafka does not know it, and did not for so long: since it was first tried here, again and again."""
        first_ms, last_ms = self._unknown.get(partition, (self.now_ms, self.now_ms))
        if self.now_ms - last_ms > UNKNOWN_AGAIN_MS:
            first_ms = self.now_ms
        self._unknown[partition] = first_ms, self.now_ms
        return self.now_ms - first_ms

    def known(self, partitions: Collection[TopicPartition]) -> None:
        """These were started."""
        for partition in partitions if self._unknown else ():
            self._unknown.pop(partition, None)

    def disown(self, waiting: str) -> None:
        """Nobody waits any more for what the application answers to these calls."""
        self.calls = {token: who for token, who in self.calls.items() if who != waiting}

    def stop_running(self, partitions: Collection[TopicPartition]) -> list[TopicPartition]:
        """The application must not read these any more; returns them, sorted."""
        lost = sorted(partitions)
        self.holdings.halt(lost)
        if lost:
            self.call("lost", tuple(lost))
        return lost

    def fetch_started(self, offsets: Mapping[TopicPartition, int], generation: int) -> None:
        """Report what may be read from now on, while the lease holds."""
        fields = {"partitions": sorted(offsets), "offsets": dict(offsets), "generation": generation}
        self.event("fetch_started", fields)

    def event(self, name: str, fields: Mapping[str, Any]) -> None:
        """Report what happened, with who it happened to."""
        self._events(name, {**fields, "group": self.paths.group, "consumer": self.paths.consumer_id})
