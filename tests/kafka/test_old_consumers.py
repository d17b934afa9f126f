"""The poll-style consumer beside old consumers, which wait for a partition only so long."""

from __future__ import annotations

import pytest

from tests.kafka.helpers import PATIENCE_SECONDS, Broker, Coordinator, Open, read
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError


def test_f108_a_stop_that_old_consumers_cut_short_ends_at_once_and_a_late_commit_is_refused(
    open_consumer: Open, coordinator: Coordinator, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = (TopicPartition(broker.topic([3, 3]), partition) for partition in (0, 1))
    consumer = open_consumer()
    coordinator.give({a: 0})
    assert read(consumer, 1) == [(0, 0)]
    stop = coordinator.take([a])
    wait_until(lambda: consumer._holdings.wanted() == {}, "the stop has begun")
    coordinator.held.discard(a)  # the membership has given it up: the loss is told when `on_stop` has returned
    assert stop.result(PATIENCE_SECONDS) == {a: 0}  # the answer does not count
    coordinator.give({b: 0})  # it was not held up
    assert f"messages of {a} are in work, and will come again, elsewhere: the stop waited until" in caplog.text
    with pytest.raises(FencedError, match=str(a)):
        consumer.commit()
    assert coordinator.commits == []
    assert {where for where, _ in read(consumer, 3)} == {1}
