"""The servers and programs of the main demo, with methods that look at them and wait for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from zkcoord.core.model import Phase, TopicPartition, consumer_of
from zkcoord.demo.options import CONSUMERS, COORDINATORS, GROUP, KAFKA_VERSIONS, TOPIC, Options, Places
from zkcoord.demo.programs import COORDINATOR, Programs, called
from zkcoord.demo.say import Voice
from zkcoord.demo.watch import Watch
from zkcoord.embedded.artifacts import KAFKA_4_VERSION
from zkcoord.group_report import GroupReport, read_group
from zkcoord.tree.paths import DRAFT, FROM_KAFKA, FROM_ZOOKEEPER, layout_named

CALM_MS = 500  # a group that stays settled this long has come to rest


class Stage(Programs):
    """The demo's servers and programs."""

    def __init__(self, options: Options, places: Places, voice: Voice) -> None:
        version = KAFKA_VERSIONS[options.kafka]
        super().__init__(options, places, voice, partitions=options.partitions, kafka_version=version)
        self.layout = layout_named(DRAFT.name, FROM_KAFKA if version == KAFKA_4_VERSION else FROM_ZOOKEEPER)

    def set_up(self) -> None:
        """Start the servers, coordinators, the producer, and three consumers, until these are warm."""
        self.voice.say(f"starting ZooKeeper and Kafka {self.kafka.version}")
        self.start_servers()
        for number in COORDINATORS:
            self.start_coordinator(number)
        self.watch = Watch(self.zookeeper.hosts)
        self.stack.callback(self.watch.close)
        self.start_producer()
        self.wait("a coordinator to serve", lambda: self.serving() is not None)
        source = ", told by Kafka itself" if self.layout.mirrored else ""
        self.voice.say(
            f"coordinator {self.serving()} serves, topic {TOPIC} has {len(self.partitions)} partitions{source}"
        )
        for name in CONSUMERS:
            self.start_spark(name)
        self.voice.say("three PySpark consumers warm up: only then do they join")
        for name in CONSUMERS:
            self.wait(f"consumer {name} to be warm", partial(self.logs[name].first, "warm"))
            self.voice.say(f"consumer {name} is warm")

    # looking

    def group(self) -> GroupReport:
        """The group as it stands in ZooKeeper."""
        return read_group(self.tree, self.layout, GROUP)

    def owners(self) -> dict[TopicPartition, str]:
        """Return the id of the consumer that owns each partition; "" if no consumer owns it."""
        owners = self.group().view.owners
        return {p: consumer_of(owners[p].thread) if p in owners else "" for p in self.partitions}

    def consumer_id(self, name: str) -> str:
        """Return the id of the registration of consumer `name`; "" before its first one."""
        registered = self.logs[name].last("registered")
        return registered["consumer"] if registered else ""

    def processed(self) -> int:
        """Return how many records are committed."""
        offsets = self.group().offsets
        return sum(offsets.get(p) or 0 for p in self.partitions)

    def lag(self) -> int:
        """Return how many records are not committed yet."""
        offsets = self.group().offsets  # read before the ends of the logs, so that the lag is never negative
        ends = self.kafka_client.end_offsets(self.partitions)
        return sum(ends[p] - (offsets.get(p) or 0) for p in self.partitions)

    def status(self) -> str:
        """Return the number of records produced, the lag, and the group, in one line."""
        return f"{self.produced():,} produced, lag {self.lag():,} · {self.describe()}"

    def describe(self) -> str:
        """Return the group in one line, for a person."""
        report = self.group()
        held = shares(self.owners(), {self.consumer_id(name): name for name in CONSUMERS})
        return f"{report.phase.value}, generation {report.view.state.generation} · {held}"

    # waiting

    def settle(self, names: Iterable[str]) -> None:
        """Wait until the group has exactly these consumers, each reads its share, and this lasts for CALM_MS."""
        expected = {self.consumer_id(name) for name in names}

        def settled() -> bool:
            report = self.group()
            return report.settled and set(report.view.members) == expected

        self.calm("the group to settle", settled, CALM_MS)

    def stable_ms(self, since_ms: int) -> int:
        """Wait until a coordinator has reported after `since_ms` that the group became stable, or that it was stable
        when the coordinator took over. Return the time of the last such report."""

        def said() -> list[int]:
            logs = [self.logs[f"{COORDINATOR}-{number}"] for number in COORDINATORS]
            told = [event for log in logs for event in log.all("rebalance_stable", since_ms=since_ms)]
            found = [event for log in logs for event in log.all("took_over", since_ms=since_ms)]
            told += [event for event in found if Phase.STABLE.value in event["states"]]
            return [event["mono_ms"] for event in told]

        return max(self.wait("the coordinator to see a stable group", said))


def shares(owners: Mapping[TopicPartition, str], names: Mapping[str, str]) -> str:
    """Return the partitions of each consumer, for a person. `owners`: partition -> consumer id, "" if nobody owns it;
    `names`: consumer id -> name, with the id "" for a consumer that is not registered yet.

    >>> shares({TopicPartition("t", 0): "g_1", TopicPartition("t", 1): ""}, {"g_1": "a", "": "c"})
    'consumer a: 0 · nobody: 1'
    """
    held: dict[str, list[str]] = {}
    for partition, owner in sorted(owners.items()):
        who = called(names[owner]) if owner and owner in names else "nobody"
        held.setdefault(who, []).append(str(partition.partition))
    return " · ".join(f"{who}: {' '.join(numbers)}" for who, numbers in sorted(held.items()))
