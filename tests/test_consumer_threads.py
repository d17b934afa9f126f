"""A caller that waits for a consumer gets an answer, even at the end of the loop, and when a callback hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any

import pytest

from tests.shell.test_loop import Recorder
from zkcoord.consumer import Consumer
from zkcoord.coordinator import Coordinator
from zkcoord.core.member.requests import CommitRequest
from zkcoord.core.model import Starting, TopicPartition
from zkcoord.errors import FencedError, InvariantError, SchemaError, UnavailableError, UsageError
from zkcoord.member.role import MemberSettings, MembershipRole
from zkcoord.shell.driver import Driver
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CallDone, FromStore, Link, LinkChanged, Request

DEADLINE_S = 60  # only a failure takes so long


class _Store:
    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **fields: None


def quiet_consumer() -> Consumer:
    """A consumer that reaches no server, and whose callbacks do nothing."""
    return Consumer("127.0.0.1:1", "g", ["t"], on_start=lambda p: None, on_stop=lambda p: {}, on_lost=lambda p: None)


def test_every_request_of_the_batch_that_ends_a_loop_is_answered() -> None:
    """Before the fix, a `stop()` (or `commit`) right after a fatal error waited for the whole rebalance timeout, which
    is 300 s in Spark."""
    loop = Loop(lambda sink: _Store(), lambda item: None)
    role = MembershipRole(loop, MemberSettings(group="g", new_id=str, registration=lambda ms: b""), _Store(), print)
    loop.run_role(role)
    futures = [Future(), Future()]
    loop.step(
        [
            Request("abandon", UnavailableError("no such chroot")),
            Request("commit", CommitRequest({}, {}), futures[0]),
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
    consumer._worker.call(1, "stop", ())  # as the loop calls it
    stopping = threading.Thread(target=consumer.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    try:
        assert not stopping.is_alive()
    finally:
        never.set()


def test_f59_a_loss_is_told_while_the_question_where_to_start_has_no_answer() -> None:
    answered, asked, told = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []

    def reset(partitions: tuple[TopicPartition, ...]) -> dict[TopicPartition, int]:
        asked.set()
        answered.wait()  # longer than anybody waits for the loss
        return dict.fromkeys(partitions, 0)

    def lost(partitions: object) -> None:
        order.append("lost")
        told.set()

    consumer = Consumer(
        "127.0.0.1:1",
        "g",
        ["t"],
        on_start=lambda p: order.append("start"),
        on_stop=lambda p: {},
        on_lost=lost,
        reset=reset,
    )
    consumer._worker.start()
    try:
        consumer._worker.call(1, "reset", (TopicPartition("t", 0),))
        assert asked.wait(DEADLINE_S)
        consumer._worker.call(2, "start", Starting({}, 1))
        consumer._worker.call(3, "lost", ())
        assert told.wait(DEADLINE_S)
        assert order == ["start", "lost"]  # the callbacks themselves stay in order
    finally:
        answered.set()
        consumer._worker.stop(DEADLINE_S)


def test_a_bug_in_a_step_tells_the_application_and_whoever_waits() -> None:
    """Otherwise records would be read on without a membership, and a commit would wait until its timeout."""
    consumer = quiet_consumer()
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
    with pytest.raises(ZeroDivisionError):
        consumer.commit({TopicPartition("t", 0): 1})


@pytest.mark.parametrize("told", [True, False])
def test_f80_a_bug_leaves_the_session_open_until_the_application_obeys_or_the_lease_ends(told: bool) -> None:
    """Otherwise another consumer would start partitions that this application still reads."""
    closed, obeys, asked = threading.Event(), threading.Event(), threading.Event()

    class Store(_Store):
        def close(self) -> None:
            closed.set()

    driver = Driver(lambda sink: Store(), "test", lambda name, fields: None)

    class Role(Recorder):
        def decide(self, now_ms: int) -> int | None:
            raise ZeroDivisionError("a bug")

        def ended(self, now_ms: int) -> int | None:
            asked.set()
            if not told:
                raise RuntimeError("the role is in no state to tell anybody")
            return None if obeys.is_set() else now_ms + 10

    role = Role(driver.loop)
    driver.loop.run_role(role)
    driver.loop._open_when_due(0, 0)
    driver.put(FromStore(1, LinkChanged(Link.CONNECTED, 77, 3_000)))
    began_ms = driver.clock.now_ms()

    def run() -> None:
        with pytest.raises(ZeroDivisionError):
            driver.run()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert asked.wait(DEADLINE_S)
    assert not closed.is_set()
    obeys.set()
    assert closed.wait(DEADLINE_S)
    thread.join(DEADLINE_S)
    assert driver.loop.finished
    assert told or driver.clock.now_ms() - began_ms >= 2_000  # two thirds of the timeout


def test_a_commit_after_the_consumer_ended_by_itself_says_why_and_who_acts() -> None:
    """A FencedError says that nobody needs to act. With another layout an operator must act."""
    consumer = quiet_consumer()
    why = SchemaError("/zkcoord/schema: an operator must restore it")

    def decide(now_ms: int) -> int | None:
        consumer._driver.loop.fail(why, now_ms)
        return None

    consumer._role.decide = decide  # type: ignore[method-assign]
    consumer.start()
    consumer._driver.join()
    with pytest.raises(SchemaError) as raised:
        consumer.commit({TopicPartition("t", 0): 1})
    assert raised.value is why
    consumer.stop()


def test_a_commit_under_way_while_the_consumer_ends_by_itself_says_why() -> None:
    consumer = quiet_consumer()
    why = SchemaError("/zkcoord/schema: an operator must restore it")

    def requested(request: Request, now_ms: int) -> None:
        consumer._driver.loop.fail(why, now_ms)
        request.future.set_exception(FencedError("lost its registration: the consumer has ended"))

    consumer._role.requested = requested  # type: ignore[method-assign]
    consumer.start()
    with pytest.raises(SchemaError) as raised:
        consumer.commit({TopicPartition("t", 0): 1})
    assert raised.value is why
    consumer.stop()


def test_a_commit_after_a_stop_is_fenced_and_says_so() -> None:
    consumer = quiet_consumer()
    consumer.start()
    consumer.stop()
    with pytest.raises(FencedError, match=r"^the consumer was stopped$"):
        consumer.commit({TopicPartition("t", 0): 1})


def test_a_bug_in_a_step_answers_the_requests_of_that_step() -> None:
    """They are not in the inbox any more, and the role may not have seen them."""
    driver = Driver(lambda sink: _Store(), "test", print)
    role = MembershipRole(
        driver.loop, MemberSettings(group="g", new_id=str, registration=lambda ms: b""), _Store(), print
    )
    driver.loop.run_role(role)
    unknown, stop = driver.ask("dance"), driver.ask("stop")
    with pytest.raises(InvariantError, match="a consumer is asked to 'dance'"):
        driver.run()
    assert [str(unknown.exception(0)), str(stop.exception(0))] == ["the loop has ended"] * 2


def test_a_coordinator_answers_its_stop_and_refuses_what_it_does_not_know() -> None:
    coordinator = Coordinator("127.0.0.1:1")
    stop = coordinator._driver.ask("stop")
    coordinator.run()
    assert stop.result(0) is None
    coordinator = Coordinator("127.0.0.1:1")
    coordinator._driver.ask("commit")
    with pytest.raises(InvariantError, match="a coordinator is asked to 'commit'"):
        coordinator.run()


def test_a_commit_says_by_which_start_its_partitions_ran_when_it_was_decided() -> None:
    """Inside of `on_start`, a commit still belongs to the earlier start. A start that raises leaves no partition that
    runs."""
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    seen: list[CommitRequest] = []

    def on_start(positions: Mapping[TopicPartition, int]) -> None:
        consumer.commit({first: 1})
        if len(seen) == 2:
            raise RuntimeError("cannot start")

    consumer = Consumer("127.0.0.1:1", "g", ["t"], on_start=on_start, on_stop=lambda p: {}, on_lost=lambda p: None)

    def ask(name: str, argument: CommitRequest) -> Future[None]:
        seen.append(argument)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    consumer._driver.ask = ask  # type: ignore[method-assign,assignment]
    consumer._worker.start()
    for number, positions in enumerate(({first: 0}, {first: 0, second: 0}, {first: 0}), start=1):
        consumer._worker.call(number, "start", Starting(positions, number))
    consumer._worker.stop(DEADLINE_S)
    consumer.commit({first: 2, second: 3})
    consumer.commit({first: 4}, {first: 1})
    assert seen == [
        CommitRequest({first: 1}, {first: 0}),
        CommitRequest({first: 1}, {first: 1}),
        CommitRequest({first: 1}, {first: 0}),
        CommitRequest({first: 2, second: 3}, {first: 3, second: 0}),
        CommitRequest({first: 4}, {first: 1}),
    ]


class Ended(BaseException):
    """An error that ends a program, as SystemExit, KeyboardInterrupt and GeneratorExit do."""


@pytest.mark.parametrize("name", ["start", "stop", "lost", "reset", "replay"])
def test_f63_an_exit_in_a_callback_ends_the_membership_and_is_raised_where_the_user_waits(name: str) -> None:
    """Before the fix, the worker's thread ended without a message. The member stayed registered, and obeyed nothing."""
    ends = Ended(name)
    lost: list[tuple[TopicPartition, ...]] = []

    def end(argument: object) -> Any:
        if lost or name != "lost":
            raise ends
        return lost.append(())

    callbacks: dict[str, Any] = {
        "on_start": end,
        "on_stop": end,
        "on_lost": lost.append,
        "on_replay": end,
        "reset": end,
    }
    if name == "lost":
        callbacks["on_lost"] = end
        lost.append(())
    consumer = Consumer("127.0.0.1:1", "g", ["t"], **callbacks)
    answers: list[CallDone] = []
    partition = TopicPartition("t", 0)
    for line in (consumer._worker._callbacks, consumer._worker._questions):
        line._answer = answers.append
    consumer._worker.call(0, "replay", {partition: (5, 6)})
    starting = Starting({partition: 5}, 1)
    consumer._worker.call(1, "start" if name == "replay" else name, starting if name != "stop" else (partition,))
    if name != "lost":
        consumer._worker.call(2, "lost", (partition,))  # as the loop does it at its end
    consumer.start()
    consumer._driver.ended.wait(DEADLINE_S)

    with pytest.raises(Ended) as raised:
        consumer.commit({partition: 6})
    assert (raised.value, consumer.error) == (ends, ends)
    consumer.stop()  # it does not raise again
    assert sorted(done.token for done in answers) == ([0, 1] if name == "lost" else [0, 1, 2])
    assert lost == [()] if name == "lost" else lost == [(partition,)]


def test_f63_an_exit_in_a_callback_is_raised_by_stop_when_no_call_has_told_it() -> None:
    def leave(positions: object) -> None:
        raise SystemExit(3)

    consumer = Consumer("127.0.0.1:1", "g", ["t"], on_start=leave, on_stop=lambda p: {}, on_lost=lambda p: None)
    consumer._worker.call(1, "start", Starting({}, 1))
    with pytest.raises(SystemExit) as raised, consumer:
        consumer._driver.ended.wait(DEADLINE_S)
    assert raised.value.code == 3
    consumer.stop()


def test_f63_a_request_that_cannot_be_served_fails_alone() -> None:
    """Before the fix, the request's error ended the loop, and the membership with it."""
    loop = Loop(lambda sink: _Store(), lambda item: None)
    role = MembershipRole(loop, MemberSettings(group="g", new_id=str, registration=lambda ms: b""), _Store(), print)
    loop.run_role(role)

    def requested(request: Request, now_ms: int) -> None:
        if request.name == "stop":
            request.future.set_result(None)
        else:
            raise AttributeError("it has no offsets")

    role.requested = requested  # type: ignore[method-assign]
    wrong, stop = Request("commit"), Request("stop")
    loop.step([wrong, stop], 0)
    assert isinstance(wrong.future.exception(0), AttributeError)
    assert (stop.future.result(0), loop.finished, loop.fatal) == (None, False, None)


def test_a_consumer_that_was_stopped_before_its_start_never_joins() -> None:
    """Before the fix, a later `start` did join the group."""
    consumer = quiet_consumer()
    consumer.stop()
    with pytest.raises(UsageError, match=r"^this consumer was stopped, and never joins again: make a new Consumer$"):
        consumer.start()
    with pytest.raises(FencedError, match=r"^the consumer was stopped$"):
        consumer.commit({TopicPartition("t", 0): 1})
    consumer.stop()
    assert not consumer._driver._thread.is_alive()


def test_a_consumer_that_was_stopped_cannot_be_started_again() -> None:
    consumer = quiet_consumer()
    consumer.start()
    consumer.start()
    consumer.stop()
    with pytest.raises(UsageError, match="make a new Consumer"):
        consumer.start()
