"""The servers and programs of the demo, and how it looks at them and waits for them."""

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
        """Servers, coordinators, the producer, and three consumers that are warm."""
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
        """Who owns each partition, as consumer ids."""
        owners = self.group().view.owners
        return {p: consumer_of(owners[p].thread) if p in owners else "" for p in self.partitions}

    def consumer_id(self, name: str) -> str:
        """The id that consumer `name` is registered with; "" before it was."""
        registered = self.logs[name].last("registered")
        return registered["consumer"] if registered else ""

    def processed(self) -> int:
        """How many records are committed."""
        offsets = self.group().offsets
        return sum(offsets.get(p) or 0 for p in self.partitions)

    def lag(self) -> int:
        """Records that are not committed yet."""
        offsets = self.group().offsets  # read first, so that it is never negative
        ends = self.kafka_client.end_offsets(self.partitions)
        return sum(ends[p] - (offsets.get(p) or 0) for p in self.partitions)

    def status(self) -> str:
        """What was produced and is still to be processed, and the group."""
        return f"{self.produced():,} produced, lag {self.lag():,} · {self.describe()}"

    def describe(self) -> str:
        """The group for a person, in one line."""
        report = self.group()
        held = shares(self.owners(), {self.consumer_id(name): name for name in CONSUMERS})
        return f"{report.phase.value}, generation {report.view.state.generation} · {held}"

    # waiting

    def settle(self, names: Iterable[str]) -> None:
        """Wait until the group consists of these consumers, each reading its share, and stays like that."""
        expected = {self.consumer_id(name) for name in names}

        def settled() -> bool:
            report = self.group()
            return report.settled and set(report.view.members) == expected

        self.calm("the group to settle", settled, CALM_MS)

    def stable_ms(self, since_ms: int) -> int:
        """When a coordinator last said that the group is stable, or that it found it so, after `since_ms`."""

        def said() -> list[int]:
            logs = [self.logs[f"{COORDINATOR}-{number}"] for number in COORDINATORS]
            told = [event for log in logs for event in log.all("rebalance_stable", since_ms=since_ms)]
            found = [event for log in logs for event in log.all("took_over", since_ms=since_ms)]
            told += [event for event in found if Phase.STABLE.value in event["states"]]
            return [event["mono_ms"] for event in told]

        return max(self.wait("the coordinator to see a stable group", said))


def shares(owners: Mapping[TopicPartition, str], names: Mapping[str, str]) -> str:
    """Who reads what, for a person. `owners`: consumer ids, "" nobody; `names`: of the ids, "" for not registered yet.

    >>> shares({TopicPartition("t", 0): "g_1", TopicPartition("t", 1): ""}, {"g_1": "a", "": "c"})
    'consumer a: 0 · nobody: 1'
    """
    held: dict[str, list[str]] = {}
    for partition, owner in sorted(owners.items()):
        who = called(names[owner]) if owner and owner in names else "nobody"
        held.setdefault(who, []).append(str(partition.partition))
    return " · ".join(f"{who}: {' '.join(numbers)}" for who, numbers in sorted(held.items()))
