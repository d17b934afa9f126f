"""The demo's course: calm and events in turn; then all output is read and counted."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from zkcoord.clock import mono_ms
from zkcoord.core.model import TopicPartition
from zkcoord.demo.accounting import Range, count_records, parse_range, unowned_times
from zkcoord.demo.events import Event
from zkcoord.demo.options import CONSUMERS, COORDINATORS
from zkcoord.demo.output import read_outputs
from zkcoord.demo.programs import COORDINATOR, END_MS, PRODUCER
from zkcoord.demo.report import Happening, Result
from zkcoord.demo.stage import Stage

LEAVING, KILLED, JOINING = CONSUMERS


def play(stage: Stage) -> Result:
    """Play the whole demo with the servers and programs of `stage`, which run already."""
    drama = _Drama(stage)
    for name in (LEAVING, KILLED):
        drama.let_in(name)
    stage.settle((LEAVING, KILLED))
    stage.voice.say(f"two consumers share the topic: {stage.describe()}")
    stage.places.go(PRODUCER).touch()
    stage.voice.say(f"records flow, {stage.options.rate:,} a second")
    happenings = []
    events: tuple[Callable[[], Happening], ...] = (drama.joins, drama.dies, drama.fails_over, drama.leaves)
    for event in events:
        stage.flow(stage.options.seconds * 1_000 // (len(events) + 1))
        happening = event()
        happenings.append(happening)
        stage.voice.say(f"the group is stable: {stage.describe()}")
    stage.flow(stage.options.seconds * 1_000 // (len(events) + 1))
    produced = _end_of_records(stage)
    stage.voice.say("counting")
    logs = [stage.logs[name].events() for name in CONSUMERS]
    counts = {int(partition): count for partition, count in produced["records"].items()}
    return Result(
        records=count_records(counts, read_outputs(stage.places.output), drama.interrupted),
        flow_ms=produced["spent_ms"],
        happenings=happenings,
        unowned=unowned_times(logs, stage.watch.gone_ms()),
    )


def _end_of_records(stage: Stage) -> Event:
    """End the producer and wait until everything is committed; return the producer's count of records."""
    said = stage.end_producer()
    stage.wait("lag 0 on every partition", lambda: stage.lag() == 0, status=True)
    return said


class _Drama:
    """The events. Each returns when the group is stable again."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._members: list[str] = []
        self.interrupted: tuple[Range, ...] = ()

    def let_in(self, name: str) -> Event:
        """Let a warm consumer join; return the event of its registration."""
        self._stage.places.go(name).touch()
        self._members.append(name)
        return self._stage.wait(f"consumer {name} to register", lambda: self._stage.logs[name].first("registered"))

    def joins(self) -> Happening:
        """A third, warm consumer joins."""
        self._stage.voice.say(f"EVENT: consumer {JOINING} joins")
        before = self._stage.owners()
        registered_ms = self.let_in(JOINING)["mono_ms"]
        return self._settled("a third consumer joins", before, registered_ms, registered_ms)

    def dies(self) -> Happening:
        """A consumer is killed while a batch runs."""
        stage, consumer_id = self._stage, self._stage.consumer_id(KILLED)
        before = stage.owners()
        stage.playing.discard(KILLED)
        batch, began_ms = stage.wait(f"a batch of consumer {KILLED}", self._kill_in_batch)
        self.interrupted = tuple(parse_range(each) for each in batch["ranges"])
        self._members.remove(KILLED)
        size = sum(each.end - each.start for each in self.interrupted)
        stage.voice.say(f"EVENT: consumer {KILLED} is killed (SIGKILL) in its batch {batch['seq']}, {size:,} records")
        gone_ms = stage.wait("its session to end", lambda: stage.watch.gone_ms().get(consumer_id), status=True)
        stage.voice.say(f"ZooKeeper has ended its session after {gone_ms - began_ms:,} ms")
        return self._settled("a consumer is killed", before, began_ms, gone_ms)

    def _kill_in_batch(self) -> tuple[Event, int] | None:
        """Kill the consumer if a batch runs. Suspend it first (SIGSTOP), so that the batch cannot end before the
        kill."""
        log, child = self._stage.logs[KILLED], self._stage.children[KILLED]
        if not _running_batch(log.last("batch_started", "batch_written")):
            return None
        child.pause()
        began_ms = mono_ms()
        batch = log.last("batch_started", "batch_written")
        if batch is None or not _running_batch(batch):
            child.resume()
            return None
        child.kill()
        return batch, began_ms

    def fails_over(self) -> Happening:
        """The active coordinator is killed; consumers read on, and the standby takes over."""
        stage = self._stage
        before, number = stage.owners(), stage.serving()
        name = f"{COORDINATOR}-{number}"
        standby = next(f"{COORDINATOR}-{other}" for other in COORDINATORS if other != number)
        stage.voice.say(f"EVENT: coordinator {number}, which serves, is killed (SIGKILL)")
        stage.playing.discard(name)
        processed, began_ms = stage.processed(), mono_ms()
        stage.children[name].kill()
        gone_ms = stage.wait("its session to end", lambda: stage.watch.gone_ms().get(str(number)), status=True)
        elected = stage.wait("the standby to serve", lambda: stage.logs[standby].first("elected", since_ms=began_ms))
        meanwhile = stage.processed() - processed
        after_ms = max(0, elected["mono_ms"] - gone_ms)
        stage.voice.say(
            f"that session has ended after {gone_ms - began_ms:,} ms; {after_ms:,} ms later the standby serves"
        )
        note = f"{meanwhile:,} records processed meanwhile"
        return self._settled("the coordinator is killed", before, began_ms, gone_ms, note)

    def leaves(self) -> Happening:
        """A consumer leaves by SIGTERM: the new coordinator hands its partitions over."""
        stage, consumer_id = self._stage, self._stage.consumer_id(LEAVING)
        before = stage.owners()
        stage.voice.say(f"EVENT: consumer {LEAVING} leaves (SIGTERM)")
        stage.playing.discard(LEAVING)
        self._members.remove(LEAVING)
        began_ms = mono_ms()
        stopping = threading.Thread(target=stage.children[LEAVING].stop, args=[END_MS], name="stop", daemon=True)
        stopping.start()
        gone_ms = stage.wait("it to leave", lambda: stage.watch.gone_ms().get(consumer_id), status=True)
        happening = self._settled("a consumer leaves", before, began_ms, gone_ms)
        stopping.join()
        return happening

    def _settled(
        self, name: str, before: Mapping[TopicPartition, str], began_ms: int, known_ms: int, note: str = ""
    ) -> Happening:
        """Wait until the group has come to rest, and measure."""
        stage = self._stage
        stage.settle(self._members)
        stable_ms = stage.stable_ms(began_ms)
        moved = sum(1 for partition, owner in stage.owners().items() if before[partition] != owner)
        return Happening(
            name=name,
            began_ms=began_ms,
            known_ms=known_ms,
            stable_ms=max(stable_ms, known_ms),
            moved=moved,
            note=note,
        )


def _running_batch(event: Event | None) -> bool:
    return event is not None and event["event"] == "batch_started"
