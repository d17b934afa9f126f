"""Whoever waits for a consumer gets an answer: at the end of its loop, and when a callback hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

import pytest

from zkcoord.consumer import Consumer
from zkcoord.core.model import TopicPartition
from zkcoord.errors import FencedError, UnavailableError
from zkcoord.shell.loop import Loop
from zkcoord.shell.membership import MemberSettings, MembershipRole
from zkcoord.shell.ports import Request


class _Store:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **fields: None


def test_every_request_of_the_batch_that_ends_a_loop_is_answered() -> None:
    """`stop()` (or a `commit`) right behind a fatal error waits the whole rebalance timeout, 300 s of Spark's."""
    loop = Loop(lambda sink: _Store(), lambda item: None)
    role = MembershipRole(loop, MemberSettings(group="g", new_id=str, registration=lambda ms: b""), _Store(), print)
    loop.run_role(role)
    futures = [Future(), Future()]
    loop.step(
        [
            Request("abandon", UnavailableError("no such chroot")),
            Request("commit", {}, futures[0]),
            Request("stop", None, futures[1]),
        ],
        0,
    )
    assert loop.finished
    assert [future.done() for future in futures] == [True, True]


def test_stop_returns_although_a_callback_hangs() -> None:
    """ "Waits at most the rebalance timeout for `on_stop`"."""
    never = threading.Event()

    def hang(partitions: object) -> dict[TopicPartition, int]:
        never.wait()
        return {}

    consumer = Consumer(
        "127.0.0.1:1", "g", ["t"], on_start=lambda p: None, on_stop=hang, on_lost=hang, rebalance_timeout_ms=1_000
    )
    consumer.start()
    consumer._worker.call(1, "stop", ())  # as the loop does
    stopping = threading.Thread(target=consumer.stop, daemon=True)
    stopping.start()
    stopping.join(5)
    try:
        assert not stopping.is_alive()
    finally:
        never.set()


def test_a_bug_in_a_step_tells_the_application_and_whoever_waits() -> None:
    """Else records are read on without a membership, and a commit waits for its whole time-out."""
    consumer = Consumer(
        "127.0.0.1:1",
        "g",
        ["t"],
        on_start=lambda p: None,
        on_stop=lambda p: {},
        on_lost=lambda p: None,
        rebalance_timeout_ms=60_000,
    )
    role = consumer._role
    told: list[str] = []
    role.ended = lambda now_ms: told.append("ended")  # type: ignore[method-assign]

    def decide(now_ms: int) -> int | None:
        raise ZeroDivisionError("a bug")

    role.decide = decide  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        consumer._driver.run()
    assert told == ["ended"]
    assert isinstance(consumer.error, ZeroDivisionError)
    with pytest.raises(FencedError):
        consumer.commit({TopicPartition("t", 0): 1})
