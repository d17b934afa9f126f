"""What the application behind a member was asked, what it answered, and what it runs therefore."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition

Partitions = tuple[TopicPartition, ...]


class Call(NamedTuple):
    """A question to the application: `reset`, `start` or `stop`."""

    name: str
    partitions: Partitions
    number: int = 0  # of a start: all calls `start` of this consumer are counted from 1 on
    resumes: bool = False  # a start of what is held already


class FirstRecords(NamedTuple):
    """The first record of each of these since its start was handed out at this time. `starts`: partition -> the number
    of that start."""

    starts: Mapping[TopicPartition, int]
    at_ms: int


class Answer(NamedTuple):
    """What the application answered: a value, or an error; `part`: it is still at the rest."""

    call: Call
    value: Any = None
    error: BaseException | None = None
    part: bool = False


@dataclass(frozen=True, kw_only=True)
class Application:
    """One registration's application. `running`: what it was told to start, and not to stop, with the number of the
    start."""

    running: Mapping[TopicPartition, int] = field(default_factory=dict)
    calls: Mapping[int, Call] = field(default_factory=dict)  # by token: without an answer
    answers: tuple[Answer, ...] = ()  # that no decision has seen
    full: bool = False  # so many calls wait that nothing may be begun that makes more

    def asked(self, token: int, call: Call) -> Application:
        """With this call under way."""
        return fast_replace(self, calls={**self.calls, token: call})

    def answered(self, token: int, value: Any, error: BaseException | None, *, part: bool) -> Application:
        """With the answer to a call; without a change when nobody waits for it any more."""
        call = self.calls.get(token)
        if call is None:
            return self
        calls = self.calls if part else {t: waiting for t, waiting in self.calls.items() if t != token}
        running = self.running
        if call.name == "start" and error is None:
            running = {**running, **dict.fromkeys(call.partitions, call.number)}
        elif call.name == "stop":
            running = _without(running, call.partitions if not part else value[0])
        answers = (*self.answers, Answer(call, value, error, part))
        return fast_replace(self, running=running, calls=calls, answers=answers)

    def lost(self, partitions: Iterable[TopicPartition], *, resuming: bool, stopping: bool = False) -> Application:
        """With these not running any more. `resuming`: the answer to a start of what is held does not count either;
        `stopping`: nor does that to a stop."""
        calls = {t: call for t, call in self.calls.items() if not call.resumes} if resuming else self.calls
        if stopping:
            calls = {t: call for t, call in calls.items() if call.name != "stop"}
        return fast_replace(self, running=_without(self.running, partitions), calls=calls)

    def heard(self) -> Application:
        """With all answers seen."""
        return fast_replace(self, answers=()) if self.answers else self

    def waits_for(self, name: str, *, resumes: bool = False) -> bool:
        """True while such a call has no answer."""
        return any(call.name == name and call.resumes is resumes for call in self.calls.values())

    @property
    def resuming(self) -> Partitions:
        """What the application is starting again."""
        return next((call.partitions for call in self.calls.values() if call.resumes), ())


def _without(running: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    left = dict(running)
    for partition in partitions:
        left.pop(partition, None)
    return left
