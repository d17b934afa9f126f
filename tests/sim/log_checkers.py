"""Rules of offsets in both stores (docs/offsets.md, "Which offset counts"), and of the programs that move them.

The rule of the tenure is written here a second time. A *floor* is an offset that the group can rely on: it was written
to the node, or Kafka acknowledged it to the member that held the partition. No start is below the floor. The floor
falls when an operator sets the node, and when somebody else than the holder replaces or removes Kafka's commit: a
stranger, the brokers' retention, or a commit of an earlier tenure that lands late. Then the node's offset counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tests.sim.field import Field, parsed
from tests.sim.offset_log import Change, OffsetLog
from tests.sim.places import OFFSET, place_of
from tests.sim.world import Entry, World
from tests.sim.zookeeper import Txn
from zkcoord.core.model import TopicPartition
from zkcoord.core.tenure import KafkaCommit, Tenure
from zkcoord.tree.paths import SCHEMA


class Ledger:
    """The floors of one group's partitions. Attach it after `checkers.watch`."""

    def __init__(self, world: World, field: Field, log: OffsetLog) -> None:
        self._world, self._field, self._log = world, field, log
        self.floors: dict[TopicPartition, int] = {}
        self._standing: dict[TopicPartition, Change] = {}  # a holder's commit that counted when it came, and may still
        self._told: dict[TopicPartition, int] = {}  # the offset that the holder was last told to be committed
        self._beyond: dict[TopicPartition, set[int]] = {}  # offsets that were beyond the log's end when it was repaired
        self._seen: set[str] = set()  # processes that were members
        self.on_taken_back: list[Callable[[str, TopicPartition, int], None]] = []  # a former owner's commit landed
        self.others_count = False  # commits without a tenure count, as of old members that commit to Kafka alone
        world.ensemble.on_applied.append(self._applied)
        world.on_journal.append(self._journaled)
        log.on_change.append(self._changed)
        world.rest_checks.append(lambda: list(self._at_rest()))

    def counted(self, partition: TopicPartition) -> int | None:
        """The offset that counts; None: the reset policy decides."""
        path = self._world.layout.offset(self._log.group, partition)
        stat, data = self._field.ensemble.stat(path), (self._field.ensemble.data(path) or b"").strip()
        node = int(data) if data.isdigit() else None
        commit = self._log.commits.get(partition)
        if commit is None:
            return node
        incarnation = self._field.incarnations.get((self._log.group, partition.topic), 0)
        if commit.stamp is not None and 0 < commit.stamp.incarnation < incarnation:
            return node
        others = commit.stamp is None and self.others_count
        return commit.offset if stat is None or others or self._in_tenure(partition, commit) else node

    def reset(self, partition: TopicPartition, end: int) -> None:
        """The reset policy decided where reading goes on. If the position was beyond the log's end, the committed
        offset stays committed, and may be written again (a release sets a new tenure), until another offset is."""
        known = (self.floors.get(partition, 0), self._told.get(partition, 0))
        if beyond := {offset for offset in known if offset > end}:
            self.floors.pop(partition, None)
            self._field.left_behind.setdefault((self._log.group, partition), set()).update(beyond)
            self._beyond.setdefault(partition, set()).update(beyond)

    # -- ZooKeeper

    def _applied(self, txn: Txn) -> None:
        for path, _, after in txn.changes:
            if path == SCHEMA:  # with another tree id no earlier commit counts
                for partition in self.floors:
                    self._excuse(partition)
            place = place_of(path)
            if place is None or place.kind != OFFSET or place.group != self._log.group or place.partition is None:
                continue
            if after is None:
                self._excuse(place.partition)
                self.floors.pop(place.partition, None)
            else:
                self._node_written(place.partition, operator=txn.session is self._field.ensemble.operator)

    def _node_written(self, partition: TopicPartition, *, operator: bool) -> None:
        now, floor = self.counted(partition), self.floors.get(partition)
        if now is None:
            return
        if operator:
            self._excuse(partition)
            self.floors[partition] = min(now, floor if floor is not None else now)
            return
        if floor is not None and now < floor and now not in self._strangers(partition):
            self._world.fail(f"{partition} was promised {floor}, and {now} counts once its node is written")
        self._strangers(partition).discard(now)
        self.floors[partition] = now

    # -- Kafka

    def _changed(self, change: Change) -> None:
        if change.how == "acknowledged":
            self._acknowledged(change)
        elif change.how == "commit" and change.client:
            self._committed(change)
        else:
            if change.how == "stranger" and change.after is not None:
                self._strangers(change.partition).add(change.after.offset)
            self._excuse(change.partition)

    def _committed(self, change: Change) -> None:
        partition, after = change.partition, change.after
        if after is None:
            return
        if after.stamp is None:
            self._world.fail(f"{change.client} commits {partition} without its tenure")
            return
        counts, floor = self.counted(partition), self.floors.get(partition)
        key = (self._log.group, partition)
        covered, left_behind = self._field.covered.get(key), self._field.left_behind.get(key, ())
        if counts is not None and covered is not None and counts > covered and counts not in left_behind:
            self._world.fail(f"{change.client} commits {partition} at {counts}: beyond what was processed ({covered})")
        if not self._in_tenure(partition, after):
            self._excuse(partition)
            if self._in_tenure(partition, change.before) and counts is not None:
                for hook in self.on_taken_back:
                    hook(self._log.group, partition, counts)
            return
        if floor is not None and after.offset < floor:
            if after.offset not in self._strangers(partition):
                self._world.fail(f"a commit of {change.client} takes {partition} back from {floor} to {after.offset}")
            self.floors[partition] = after.offset  # the holder follows a stranger's commit
        self._strangers(partition).intersection_update({after.offset})
        if self._holds(change.client, partition):
            self._standing[partition] = change

    def _acknowledged(self, change: Change) -> None:
        """From now on the holder believes that its offset is committed."""
        partition = change.partition
        if change.after is not None:
            self._told[partition] = change.after.offset
        landed = self._standing.get(partition)
        if landed is None or landed.client != change.client or landed.after != change.after or change.after is None:
            return
        counts, offset = self.counted(partition), change.after.offset
        if not self._holds(change.client, partition) or offset in self._beyond.get(partition, ()):
            return  # the holder may have written the repaired position meanwhile
        if counts is None or counts < offset:
            self._world.fail(f"{change.client} is told that {partition} is committed at {offset}, and {counts} counts")
        self.floors[partition] = max(self.floors.get(partition, 0), offset)
        self._field.committed((self._log.group, partition), offset)

    def _in_tenure(self, partition: TopicPartition, commit: KafkaCommit | None) -> bool:
        """True if the commit names this tree, and the last write of the partition's node."""
        ensemble = self._field.ensemble
        stat = ensemble.stat(self._world.layout.offset(self._log.group, partition))
        if stat is None or commit is None or commit.stamp is None:
            return False
        tree = str(parsed(ensemble.data(SCHEMA) or b"").get("tree_id", ""))
        return commit.stamp.tenure == Tenure(tree, stat.mzxid)

    def _holds(self, client: str, partition: TopicPartition) -> bool:
        holding = self._field.holdings.get((self._log.group, partition))
        return (
            holding is not None
            and holding.client == client
            and (self._log.group, holding.consumer) in self._field.registrations
        )

    def _excuse(self, partition: TopicPartition) -> None:
        """Something else than the holder's own commit changed the offset: the offset that counts may be below the
        floor."""
        self._standing.pop(partition, None)
        counts = self.counted(partition)
        if counts is not None and partition in self.floors:
            self.floors[partition] = min(self.floors[partition], counts)

    def _strangers(self, partition: TopicPartition) -> set[int]:
        return self._field.strangers.setdefault((self._log.group, partition), set())

    # -- applications, and the calm

    def _journaled(self, entry: Entry) -> None:
        members = {made.session.client for made in self._field.registrations.values()}
        self._seen |= members
        is_gone = entry.client in self._seen and entry.client not in members  # it must not read what it starts
        if entry.event == "start" and entry.group == self._log.group and not is_gone:
            floor = self.floors.get(entry.partition)
            if floor is not None and entry.start < floor:
                self._world.fail(f"{entry.client} starts {entry.partition} at {entry.start}, {floor} was committed")

    def _at_rest(self) -> Iterator[str]:
        """At rest, where the holder keeps offsets in Kafka, Kafka has the holder's last commit, in the present
        tenure."""
        ensemble = self._field.ensemble
        for (group, partition), holding in sorted(self._field.holdings.items()):
            registered = (group, holding.consumer) in self._field.registrations
            if group != self._log.group or not registered:
                continue
            status = parsed(ensemble.data(self._field.channel(group, holding.consumer)) or b"")
            if (status.get("store") or {}).get("name") not in ("dual", "kafka"):
                continue
            commit = self._log.commits.get(partition)
            counts = self.counted(partition)
            stat = ensemble.stat(self._world.layout.offset(group, partition))
            if not self._in_tenure(partition, commit):
                yield f"Kafka has {commit} of {partition}, whose node was written at {stat and stat.mzxid} ({counts})"
