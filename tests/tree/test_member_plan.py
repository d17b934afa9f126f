"""A start whose acknowledgement would be too large for the server is detected before. Our own coordinators send no such
start."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pytest

from zkcoord.core.command import Command, Option
from zkcoord.core.member.decisions import Versions
from zkcoord.core.member.starts import STARTS_MAX
from zkcoord.core.member.status import MemberStatus
from zkcoord.core.model import TopicPartition
from zkcoord.core.replay_quota import HELD_BYTES_MAX, range_bytes
from zkcoord.core.state import Announced
from zkcoord.core.view import Refusal
from zkcoord.shell.zk import multi
from zkcoord.tree import member
from zkcoord.tree.command import encode_command, refused_ownership
from zkcoord.tree.member import Acknowledgement, MemberPaths
from zkcoord.tree.member_plan import MemberSizes, encode_member_status
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Stat
from zkcoord.tree.writes import SetNode

WIDE = Announced(2**63 - 10, 2**63 - 1, 2**63 - 1, 2**31 - 1)
NUMBER = 2**31 - 1
PATHS = MemberPaths(layout=DRAFT, group="g" * 249, consumer_id="c" * 529)


class MemberState(NamedTuple):
    """A member's status, and the starts in its channel."""

    status: MemberStatus
    starts: Mapping[str, Command]

    @property
    def too_large(self) -> int:
        """The size of the acknowledgement if it is too large, else 0."""
        sent = sum(len(encode_command(start)) for start in self.starts.values())
        return MemberSizes(PATHS).acknowledgement_bytes(self.starts, sent, {}, self.status.batch)


def state_with(ranges_bytes: int, starts: dict[str, Command]) -> MemberState:
    """A member that has announced ranges of this size, has refused as many starts as possible, and finds these
    starts."""
    batch: dict[TopicPartition, Announced] = {}
    while ranges_bytes > 0:
        partition = TopicPartition("x" * 200, NUMBER - len(batch))
        batch[partition] = WIDE
        ranges_bytes -= range_bytes(partition, WIDE)
    refusal = Refusal(generation=2**63 - 1, sequence="0000000001", reason="\U0001f600" * 200)
    refused = {TopicPartition("y" * 249, n): refusal._replace(sequence=f"{n:010d}") for n in range(500)}
    return MemberState(MemberStatus(batch=batch, refused=refused), starts)


def starts_of(count: int, topic_length: int, times: int = 1) -> dict[str, Command]:
    """This many starts. Together they have `times` as many partitions as one multi can acknowledge, each of another
    topic."""
    named = [TopicPartition(f"{'z' * (topic_length - 8)}{n:08d}", NUMBER) for n in range(20_000)]
    named = named[: times * member.room(PATHS, named)]
    return {
        f"{n:010d}": Command(
            option=Option.START_FETCHER,
            ownership=dict.fromkeys(named[n::count], f"{PATHS.consumer_id}-0"),
            owner_versions={},
            generation=1,
            epoch=1,
        )
        for n in range(count)
    }


def acknowledge(state: MemberState) -> bytes:
    """The bytes of the multi when none of these partitions has an offset."""
    named = [p for start in state.starts.values() for p in start.ownership or ()]
    above = [PATHS.layout.topic_offsets(PATHS.group, p.topic) for p in named]
    status = encode_member_status(state.status)
    done = Acknowledgement(commands=dict.fromkeys(state.starts, NUMBER), status=status, status_version=NUMBER)
    return multi.encode(
        member.start(PATHS, dict.fromkeys(named, (2**63 - 1, Versions(NUMBER, None))), above, {}, done), ""
    )


@pytest.mark.parametrize("topic_length", [8, 249])
@pytest.mark.parametrize("count", [1, STARTS_MAX])
def test_the_most_that_our_own_coordinators_hand_on_is_obeyed(count: int, topic_length: int) -> None:
    starts = starts_of(count, topic_length)
    state = state_with(HELD_BYTES_MAX, starts)
    assert state.too_large == 0
    assert 800_000 < len(acknowledge(state)) < multi.REQUEST_BYTES_MAX


@pytest.mark.parametrize(("ranges_bytes", "times"), [(2 * HELD_BYTES_MAX, 1), (0, 4)])
def test_commands_too_large_for_the_server_are_refused(ranges_bytes: int, times: int) -> None:
    starts = starts_of(1, 100, times)
    state = state_with(ranges_bytes, starts)
    assert state.too_large > multi.REQUEST_BYTES_MAX
    assert len(acknowledge(state)) > multi.REQUEST_BYTES_MAX
    ((sequence, start),) = starts.items()
    node = Node(PATHS.command(sequence), Kind.DATA, Stat(0, 1, 0), encode_command(start))
    refused = member.refuse(PATHS, node, "x" * 1_000)
    assert len(multi.encode(refused, "")) < multi.REQUEST_BYTES_MAX
    (written,) = [write.data for write in refused.writes if isinstance(write, SetNode)]
    assert refused_ownership(written) == starts[sequence].ownership


def test_obeyed_starts_fit_a_request() -> None:
    starts, sizes = starts_of(2, 120), []
    for ranges_bytes in range(0, 2 * HELD_BYTES_MAX, 25_000):
        state = state_with(ranges_bytes, starts)
        if not state.too_large:
            sizes.append(len(acknowledge(state)))
    assert sizes[-1] > 0.9 * multi.REQUEST_BYTES_MAX
