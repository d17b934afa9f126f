"""The storms of programs can fail: if a rule of the product's threads is taken away, one of a stated number of seeds
fails. (The mutations of `test_mutations.py` and its neighbours are about the loops.)"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.sim.mutations import Case, Patch, must_be_missed
from tests.sim.programs import PlainProgram
from tests.sim.spark_program import SparkProgram
from tests.sim.stream_program import StreamProgram
from tests.sim.test_program_stores import play as play_in_store
from tests.sim.test_programs import play
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.shell import worker
from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.driver import batch_guard, loop
from zkcoord.spark.stream import dependencies, handover


def a_loss_waits_behind_a_question_to_kafka(patch: Patch) -> None:
    """One thread for callbacks and `reset`."""
    make = worker.Worker.__init__

    def made(self: Any, callbacks: Any, questions: Any, answer: Any, end: Any, log: Any = None) -> None:
        make(self, {**callbacks, **questions}, {}, answer, end, log)

    patch.setattr(worker.Worker, "__init__", made)


def an_exit_in_a_callback_ends_its_thread(patch: Patch) -> None:
    """Nobody is told, and nobody serves callbacks any more."""
    make = worker.Line.__init__

    def raise_it(error: BaseException) -> None:
        raise error

    def made(self: Any, name: str, functions: Any, answer: Any, end: Any) -> None:
        make(self, name, functions, answer, raise_it)

    patch.setattr(worker.Line, "__init__", made)


def a_closed_poll_consumer_joins(patch: Patch) -> None:
    """`start` looks whether the consumer is closed, and joins, as two steps."""

    def start(self: Any) -> None:
        with self._changed:
            self._check_open()
            if self._started:
                return
            self._started = True
        self._resets.check_credentials()
        self._joined = True
        self._membership.start()

    patch.setattr(KafkaConsumer, "start", start)


def a_commit_of_polled_messages_names_no_starts(patch: Patch) -> None:
    """It counts for whatever start its partitions run by when it comes to the membership."""

    def commit(self: Any, offsets: Any = None) -> None:
        with self._changed:
            self._check_open()
            wanted = self._positions.begin_commit(offsets)
        try:
            self._membership.commit(wanted)
        finally:
            with self._changed:
                self._positions.end_commit(False)
                self._changed.notify_all()

    patch.setattr(KafkaConsumer, "commit", commit)


def a_fenced_batch_begins(patch: Patch) -> None:
    """A batch that was fenced before its jobs had a name is handed to user code all the same, and committed."""
    patch.setattr(batch_guard.BatchGuard, "fenced", property(lambda self: False))


def a_fenced_batch_is_not_cancelled(patch: Patch) -> None:
    """It reads on."""
    patch.setattr(batch_guard.BatchGuard, "fence", lambda self, tag, why: False)


def a_stop_does_not_wait_for_the_batch(patch: Patch) -> None:
    """What it reads is given up at once."""
    patch.setattr(batch_guard.BatchGuard, "_reading", lambda self, partitions: None)


def announced_ranges_are_cut_anew(patch: Patch) -> None:
    """What was announced is not read as it was."""
    patch.setattr(loop, "announced_ranges", lambda holds, ends, max_offsets: ())


def a_withdrawn_batch_stays_on_offer(patch: Patch) -> None:
    """Until the loop's thread notices."""

    def process(self: Any, frame: object, batch: Any) -> None:
        with self._changed:
            self._offered = batch
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._withdrawn or (self._offered is None and self._taken is None))
            self._offered = self._taken = None
            if self._withdrawn:
                raise handover.WithdrawnError

    def cancel(self: Any, tag: str) -> None:
        with self._changed:
            if tag == self._tag and (self._offered is not None or self._closing):
                self._withdrawn = True
                self._changed.notify_all()

    patch.setattr(handover.Handover, "process", process)
    patch.setattr(handover.Handover, "cancel", cancel)


def a_complete_range_is_passed_over_whoever_went_on(patch: Patch) -> None:
    """A query begins behind what its checkpoint has, though others have read on."""
    started = dependencies.StreamPositions.started

    def passed_over(self: Any, starting: Any) -> Any:
        self._done = {each: done._replace(start=starting.get(each, done.start)) for each, done in self._done.items()}
        return started(self, starting)

    patch.setattr(dependencies.StreamPositions, "started", passed_over)


def a_stop_commits_what_spark_has_not_completed(patch: Patch) -> None:
    """A query that ends takes its batch for complete."""
    stop = SparkConsumer.stop

    def close(self: Any) -> None:
        with self._changed:
            self._closing = True
            self._offered = self._taken = None
            self._changed.notify_all()

    patch.setattr(handover.Handover, "close", close)
    patch.setattr(SparkConsumer, "stop", lambda self, cancel=None, why="": stop(self))


plain = partial(play, kind=PlainProgram)
sparkling = partial(play, kind=SparkProgram, exact=True)
streaming = partial(play, kind=StreamProgram, exact=True)
streaming_in_kafka = partial(play_in_store, store="kafka", kind=StreamProgram, exact=True)

CASES = (
    Case(an_exit_in_a_callback_ends_its_thread, plain, 300, first=122),
    Case(a_fenced_batch_begins, sparkling, 20, first=8),
    Case(a_fenced_batch_is_not_cancelled, sparkling, 120, first=57),
    Case(a_stop_does_not_wait_for_the_batch, sparkling, 5, first=3),
    Case(announced_ranges_are_cut_anew, sparkling, 5),
    Case(a_complete_range_is_passed_over_whoever_went_on, streaming, 60, first=28),
    Case(a_stop_commits_what_spark_has_not_completed, streaming, 5, first=2),
    Case(a_stop_commits_what_spark_has_not_completed, streaming_in_kafka, 10, first=9),
    Case(a_complete_range_is_passed_over_whoever_went_on, streaming_in_kafka, 60, first=9),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)
