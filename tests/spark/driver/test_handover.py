"""One batch is handed from the loop's thread to Spark's: Spark takes it, or it is withdrawn, never both."""

from __future__ import annotations

import pytest

from tests.spark.fakes import InThread
from tests.waiting import wait_until
from zkcoord.spark.ranges import Batch, OffsetRange
from zkcoord.spark.stream.handover import Handover, WithdrawnError

BATCH = Batch(id="ab", seq=0, generation=7, ranges=(OffsetRange("t", 0, 0, 10),))


def offering(handover: Handover) -> InThread:
    """Start a thread that offers the batch "tag" as the loop does; return when Spark may take it."""

    def offer() -> None:
        with handover.running("tag", ""):
            handover.process(None, BATCH)

    running = InThread(offer)
    wait_until(lambda: handover._offered is not None, "the batch is offered")
    return running


def is_withdrawn(running: InThread) -> None:
    with pytest.raises(WithdrawnError):
        running.result()


def is_withdrawn_at_the_end(handover: Handover, running: InThread) -> None:
    """Spark has taken the batch, and never asks again."""
    assert handover.next(0) is BATCH
    handover.close()
    handover.cancel("tag")
    is_withdrawn(running)


def test_f60_a_batch_that_was_withdrawn_cannot_be_taken_before_the_loop_has_noticed() -> None:
    handover = Handover()
    running = offering(handover)
    with handover._changed:  # the loop's thread cannot run in between
        handover.cancel("tag")
        assert handover.next(0) is None
    is_withdrawn(running)


def test_the_batch_after_one_that_was_withdrawn_is_given_to_spark() -> None:
    handover = Handover()
    withdrawn = offering(handover)
    handover.cancel("tag")
    is_withdrawn(withdrawn)
    running = offering(handover)
    is_withdrawn_at_the_end(handover, running)


def test_a_batch_that_spark_runs_is_not_withdrawn_and_is_over_when_spark_says_so() -> None:
    handover = Handover()
    running = offering(handover)
    assert handover.next(0) is BATCH
    handover.cancel("tag")
    assert handover._taken is BATCH
    assert not running.done
    with handover._changed:
        handover._waiting = True  # as the loop does with its next turn
    handover.complete()
    running.result()


def test_a_complete_batch_is_committed_before_spark_goes_on() -> None:
    """Otherwise a query that shall end would not know that it has read enough, and would read on."""
    told = []

    def turn() -> None:
        with handover.running("tag", ""):
            handover.process(None, BATCH)
        with handover._changed:  # not while Spark's thread goes on
            told.append("committed")
        handover.await_turn()

    handover = Handover()
    running = InThread(turn)
    wait_until(lambda: handover._offered is not None, "the batch is offered")
    assert handover.next(0) is BATCH
    with handover._changed:  # the loop's thread runs only while this one waits
        handover.complete()
        assert told == ["committed"]
    handover.close()
    running.result()


def test_a_batch_that_spark_has_taken_is_withdrawn_when_spark_never_asks_again() -> None:
    handover = Handover()
    running = offering(handover)
    is_withdrawn_at_the_end(handover, running)


def test_a_batch_that_was_cancelled_before_it_is_offered_is_never_offered() -> None:
    def offer() -> None:
        with handover.running("tag", ""):
            handover.cancel("tag")
            handover.process(None, BATCH)

    handover = Handover()
    with pytest.raises(WithdrawnError):
        InThread(offer).result()
    assert handover.next(0) is None


def test_a_late_cancellation_of_an_earlier_batch_withdraws_nothing() -> None:
    handover = Handover()
    running = offering(handover)
    handover.cancel("the one before")
    is_withdrawn_at_the_end(handover, running)


def test_f71_spark_does_not_take_a_batch_after_its_lease_though_the_loss_is_not_heard_yet() -> None:
    """The process was suspended while the batch was on offer. Its lease is over, and Spark asks before the loss is
    known."""
    handover, allowed = Handover(), {BATCH.ranges[0].topic_partition}
    handover.allowed = allowed.__contains__
    running = offering(handover)
    allowed.clear()
    assert handover.next(0) is None
    allowed.add(BATCH.ranges[0].topic_partition)  # the lease of the same session holds again
    assert handover.next(0) is BATCH
    with handover._changed:
        handover._waiting = True  # as the loop does with its next turn
    handover.complete()
    running.result()
