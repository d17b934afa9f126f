"""What the application of a member was asked, what it answered, and which partitions it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.model import TopicPartition

Partitions = tuple[TopicPartition, ...]


class CallKind(Enum):
    """What a call to the application is about."""

    START = "start"  # of partitions that are not held yet; or a reset, which comes before it
    RESUME = "resume"  # a start of partitions that are held already
    STOP = "stop"


class Call(NamedTuple):
    """A question to the application: `reset`, `start` or `stop`."""

    name: str
    partitions: Partitions
    number: int = 0  # of a start: the calls `start` of this consumer are numbered from 1
    resumes: bool = False  # True for a start of partitions that are held already

    @property
    def kind(self) -> CallKind:
        """What it is about."""
        if self.resumes:
            return CallKind.RESUME
        return CallKind.STOP if self.name == "stop" else CallKind.START


class FirstRecords(NamedTuple):
    """The first record of each of these partitions since its start was handed out at this time. `starts` maps a
    partition to the number of that start."""

    starts: Mapping[TopicPartition, int]
    at_ms: int


class Answer(NamedTuple):
    """The application's answer: a value or an error. `part`: the rest of the call is still being worked on."""

    call: Call
    value: Any = None
    error: BaseException | None = None
    part: bool = False


@dataclass(frozen=True, kw_only=True)
class Application:
    """The application of one registration. `running` maps each partition that it was told to start, and not to stop, to
    the number of its start."""

    running: Mapping[TopicPartition, int] = field(default_factory=dict)
    calls: Mapping[int, Call] = field(default_factory=dict)  # token -> call without an answer
    answers: tuple[Answer, ...] = ()  # answers that no decision has seen
    full: bool = False  # True while so many calls wait that nothing may begin that makes more

    def asked(self, token: int, call: Call) -> Application:
        """Return a copy with this call under way."""
        return fast_replace(self, calls={**self.calls, token: call})

    def answered(self, token: int, value: Any, error: BaseException | None, *, part: bool) -> Application:
        """Return a copy with the answer to a call. It is unchanged if the call is not awaited any more."""
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

    def lost(self, partitions: Iterable[TopicPartition], ignored: CallKind | None) -> Application:
        """Return a copy in which these partitions do not run. The answers to calls of the kind `ignored` do not count
        any more."""
        calls = {token: call for token, call in self.calls.items() if call.kind is not ignored}
        return fast_replace(self, running=_without(self.running, partitions), calls=calls)

    def heard(self) -> Application:
        """Return a copy in which all answers are seen."""
        return fast_replace(self, answers=()) if self.answers else self

    def waits_for(self, name: str, *, resumes: bool = False) -> bool:
        """True while such a call has no answer."""
        return any(call.name == name and call.resumes is resumes for call in self.calls.values())

    @property
    def resuming(self) -> Partitions:
        """The partitions that the application is starting again."""
        return next((call.partitions for call in self.calls.values() if call.resumes), ())


def _without(running: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    left = dict(running)
    for partition in partitions:
        left.pop(partition, None)
    return left
