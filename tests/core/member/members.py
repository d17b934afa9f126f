"""Views of one small member, and its decisions."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from typing import Any

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.application import Application, Call
from zkcoord.core.member.decide import decide
from zkcoord.core.member.decisions import Decision
from zkcoord.core.member.memory import Memory
from zkcoord.core.member.requests import AnnounceRequest, Asked, CommitRequest
from zkcoord.core.member.status import Batch, Held, MemberStatus
from zkcoord.core.member.view import MemberView, Position, Received
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner

T0, T1, T2, T3 = (TopicPartition("t", n) for n in range(4))
ME = "g_me-1-00000000-0"
NOW = 1_000_000
FIRST, SECOND, THIRD = "0000000000", "0000000001", "0000000002"


class Roomy:
    """Sizes with room for everything, unless a test says otherwise."""

    def __init__(self, *, status: int = 0, acknowledgement: int = 0) -> None:
        self._status, self._acknowledgement = status, acknowledgement

    def status_bytes(self, status: MemberStatus) -> int:
        """The status's size: the given number of bytes for each announced range."""
        return self._status * len(status.batch)

    def room(self, partitions: list[TopicPartition]) -> int:
        """There is room for all of them."""
        return len(partitions)

    def acknowledgement_bytes(
        self, starts: Mapping[str, Command], command_bytes: int, held: Mapping[TopicPartition, Held], batch: Batch
    ) -> int:
        """The acknowledgement's size, as given."""
        return self._acknowledgement


def start(*partitions: TopicPartition, sequence: str = FIRST, versions: int | None = 0, **fields: Any) -> Received:
    """A start that grants these partitions to this member."""
    told = {} if versions is None else dict.fromkeys(partitions, versions)
    fields = {"generation": 1, "owner_versions": told, **fields}
    command = Command(option=Option.START_FETCHER, ownership=dict.fromkeys(partitions, ME), **fields)
    return Received(sequence=sequence, command=command)


def stop(*partitions: TopicPartition, sequence: str = FIRST) -> Received:
    """A stop of these partitions."""
    command = Command(option=Option.STOP_FETCHER, ownership=dict.fromkeys(partitions, ""), generation=2)
    return Received(sequence=sequence, command=command)


def other(option: Option, sequence: str = FIRST, **fields: Any) -> Received:
    """A command of another kind."""
    return Received(sequence=sequence, command=Command(option=option, **fields))


class Member:
    """A member from step to step. Its methods change the world around it as the shell would."""

    def __init__(self, *held: TopicPartition, offset: int = 5, sizes: Roomy | None = None) -> None:
        """It holds these partitions, and its application runs them by start 1."""
        self.sizes = sizes or Roomy()
        self.wake_at_ms: int | None = None  # from the last step
        self.memory = Memory().holding({p: Held(ME, 0, offset, 3, 1) for p in held}) if held else Memory()
        self.view = MemberView(
            owners=dict.fromkeys(held, Owner(ME, 0)),
            positions=dict.fromkeys(held, Position(offset, 3)),
            application=Application(running=dict.fromkeys(held, 1)),
        )

    def decides(self, now_ms: int = NOW) -> list[Decision]:
        """The decisions of one step. Checks that the step changed no argument, and that a second step gives the same
        result. Then the changes of the view count as seen."""
        handed_in = pickle.dumps((self.view, self.memory))
        first = decide(self.view, self.memory, now_ms, self.sizes)
        assert pickle.dumps((self.view, self.memory)) == handed_in
        assert decide(self.view, self.memory, now_ms, self.sizes) == first
        self.memory, self.wake_at_ms = first.memory, first.wake_at_ms
        self.view = self.view.taken_in(self.memory.held)
        self.has(application=self.view.application.heard())
        return list(first.decisions)

    def has(self, **fields: Any) -> None:
        """Set these fields of the view."""
        self.view = fast_replace(self.view, **fields)

    def finds(self, *commands: Received) -> None:
        """The channel has these commands and no others."""
        self.has(commands={received.sequence: received for received in commands})

    def reads(
        self,
        offsets: Mapping[TopicPartition, Position] | None = None,
        owners: Mapping[TopicPartition, Owner] | None = None,
    ) -> None:
        """These nodes were read, or are known from the reply to a multi of its own."""
        offsets, owners = offsets or {}, owners or {}
        self.has(
            positions={**self.view.positions, **offsets},
            owners={**self.view.owners, **owners},
            fresh=self.view.fresh | offsets.keys() | owners.keys(),
            unread=frozenset(),
        )

    def asks(self, *requests: CommitRequest | AnnounceRequest) -> None:
        """The program has these requests, numbered from 1 on, and no others."""
        self.has(requests=tuple(Asked(n, request) for n, request in enumerate(requests, start=1)))

    def called(self, name: str, *partitions: TopicPartition, number: int = 0, resumes: bool = False) -> None:
        """The application is called as it was decided."""
        call = Call(name, partitions, number, resumes)
        self.has(application=self.view.application.asked(len(self.view.application.calls) + 1, call))

    def answers(self, value: Any = None, error: BaseException | None = None, *, part: bool = False) -> None:
        """The application answers its oldest call."""
        token = min(self.view.application.calls)
        self.has(application=self.view.application.answered(token, value, error, part=part))

    def runs(self, *partitions: TopicPartition, number: int = 1) -> None:
        """The application runs exactly these partitions."""
        self.has(application=fast_replace(self.view.application, running=dict.fromkeys(partitions, number)))


def commit(offsets: Mapping[TopicPartition, int], number: int = 1) -> CommitRequest:
    """A commit that was decided while these partitions ran by this start."""
    return CommitRequest(offsets, dict.fromkeys(offsets, number))


def announce(ranges: Mapping[TopicPartition, tuple[int, int]], number: int = 1) -> AnnounceRequest:
    """An announcement that was decided while these partitions ran by this start."""
    return AnnounceRequest(ranges, dict.fromkeys(ranges, number))
