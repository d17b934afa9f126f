"""No write is larger than the server allows, whatever a member registers and leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.groups import NOW, Steps, group, member, states
from tests.tree.test_plan import GROUP, GUARDS, MARK, NODES, VIEW
from zkcoord.core.decisions import PurgeChannel, RememberInstances, StateEvent
from zkcoord.core.instances import REMEMBERED_BYTES_MAX, state_bytes
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Channel, GroupView, Instance, QueuedCommand
from zkcoord.shell.zk.multi import REQUEST_BYTES_MAX, encode
from zkcoord.tree.instance import encode_instance
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.plan import REASON_CHARS_MAX, Term, plan
from zkcoord.tree.view import GroupNodes
from zkcoord.tree.writes import ITEMS_MAX, CheckNode, DeleteNode


def largest(view: GroupView) -> int:
    """The size of the largest transaction that a coordinator writes when it sees this group, in bytes."""
    decisions, _ = Steps().step(view, NOW)
    term = Term(epoch=1, epoch_version=1, marks=dict.fromkeys(view.topics, MARK))
    return max(len(encode(t, "")) for t in plan(decisions, GroupNodes(view=view), term, DRAFT))


def static_member_of(topics: int) -> GroupView:
    """A static member that is alone with this many topics, as with a wildcard."""
    names = {f"{'a-topic-with-a-long-name':-<60}{number:06}": 1 for number in range(topics)}
    alone = member("a", threads=names, instance="one", hold_ms=30_000)
    return group([alone], {}, topics=dict.fromkeys(names, (0,)), marked=frozenset())


@pytest.mark.parametrize("topics", [10, 2_000, 10_000])
def test_a_static_member_may_have_ten_thousand_topics(topics: int) -> None:
    assert largest(static_member_of(topics)) <= REQUEST_BYTES_MAX


def test_a_share_with_too_many_topics_is_not_waited_for() -> None:
    decisions, _ = Steps().step(static_member_of(10_000), NOW)
    assert not [d for d in decisions if isinstance(d, RememberInstances)]
    [problem] = [state.problem for state in states(decisions, StateEvent.ASSIGNMENT_PROBLEM)]
    assert problem is not None
    assert problem.startswith("the shares of one do not wait for them: too many topics")
    few, _ = Steps().step(static_member_of(10), NOW)
    assert [sorted(d.known) for d in few if isinstance(d, RememberInstances)] == [["one"]]


@pytest.mark.parametrize("topic", ["t", "a.topic-1", 'a "quoted" one', "größe"])
def test_a_remembered_instance_is_no_larger_than_estimated(topic: str) -> None:
    share = {TopicPartition(topic, number): number % 3 for number in [*range(50), *range(100, 1_000, 7), 2**31 - 1]}
    instance = Instance(last_id="g_x-1-ff", hold_ms=9, threads={topic: 3}, share=share, rack=topic, assignor="sticky")
    assert len(encode_instance(instance)) <= state_bytes(instance) <= REMEMBERED_BYTES_MAX


def test_a_member_with_thousands_of_assignors_is_rejected_with_their_first_names() -> None:
    offers = tuple(f"an-assignor-{number}" for number in range(60_000))
    view = group([member("a"), replace(member("b", 2), assignors=offers)], {})
    assert largest(view) <= REASON_CHARS_MAX + 1_000


def test_a_channel_with_thousands_of_commands_is_purged_in_pieces_the_channel_last() -> None:
    commands = tuple(QueuedCommand(sequence=f"{n:010}", version=0, option="ping", threads={}) for n in range(20_000))
    gone = Channel(consumer_id="gone", version=7, commands=commands, evicted_ms=9, refused_mark=True)
    nodes = replace(NODES, view=replace(VIEW, channels={"gone": gone}))
    term = Term(epoch=4, epoch_version=9, marks={})
    *pieces, last = plan([PurgeChannel(consumer_id="gone", why="x")], nodes, term, DRAFT)
    path = f"{GROUP}/channel/gone"
    removed = [DeleteNode(f"{path}/{c.sequence}", 0) for c in commands]
    for number, piece in enumerate(pieces):
        part = removed[ITEMS_MAX * number : ITEMS_MAX * (number + 1)]
        assert piece.writes == (*GUARDS, CheckNode(path, 7), *part)
    marks = [DeleteNode(f"{path}/refused", 0), DeleteNode(f"{path}/evicted", 0)]
    assert last.writes == (*GUARDS, *removed[-ITEMS_MAX:], *marks, DeleteNode(path, 7))
