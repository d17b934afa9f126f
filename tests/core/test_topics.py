"""Topics that differ from their marks: all decisions, in order, as whole values."""

from __future__ import annotations

from tests.core.groups import NOW, T0, T1, T2, T3, Steps, channel, command, decided, group, member, settled
from zkcoord.core.decisions import Decision, DropTopic, GrantPartitions, LookUpTopic, RenewMark, StopFetching
from zkcoord.core.topics import DELETED_MS, DROPS_MAX, TopicMemory, drops
from zkcoord.core.view import GroupView, Leftovers, OffsetSeen, TopicChange

OWNED = {T0: "a-0", T1: "a-0", T2: "a-0", T3: "a-0"}
FREE = dict.fromkeys(OWNED, "")
AGAIN = "the topic was deleted and created again"
OFFSETS = {T0: OffsetSeen("17", 3)}


def kinds(decisions: list[Decision]) -> list[str]:
    """The names of the decisions."""
    return [type(decision).__name__ for decision in decisions]


def again(owners: dict[object, str], **fields: object) -> GroupView:
    """Topic t was created again while the member a reads it."""
    return settled(group([member("a")], owners, changed={"t": TopicChange.RECREATED}, **fields))  # type: ignore[arg-type]


def test_a_recreated_topics_partitions_are_stopped_and_nothing_else() -> None:
    why = "the target has them elsewhere, or the topic was created again"
    assert decided(again(OWNED)) == [StopFetching(consumer_id="a", partitions=OWNED, why=why)]


def test_while_a_command_names_a_partition_of_it_nothing_is_dropped() -> None:
    waiting = {"a": channel("a", command("start-fetcher", T0, thread="a-0"))}
    assert decided(again(FREE, channels=waiting)) == []


def test_when_nobody_reads_it_what_is_left_is_looked_up_then_dropped_then_granted() -> None:
    looked_up = {"t": Leftovers(offsets=OFFSETS, version=0)}
    assert decided(again(FREE)) == [LookUpTopic(topic="t", why=AGAIN)]
    assert decided(again(FREE, leftovers=looked_up)) == [DropTopic(topic="t", again=True, offsets=OFFSETS, why=AGAIN)]
    view = settled(group([member("a")], FREE))
    assert decided(view) == [
        GrantPartitions(consumer_id="a", partitions=OWNED, why="available, and in the target"),
    ]


def test_owners_that_are_dead_hinder_nothing() -> None:
    assert decided(again({**FREE, T2: "gone-0"})) == [LookUpTopic(topic="t", why=AGAIN)]


def test_a_mark_that_is_out_of_date_is_renewed_while_all_goes_on() -> None:
    view = settled(group([member("a")], {**OWNED, T3: ""}, changed={"t": TopicChange.RENEWED}))
    assert kinds(decided(view)) == [GrantPartitions.__name__, RenewMark.__name__]


def test_of_a_topic_whose_mark_nobody_can_read_nothing_is_granted_and_nothing_stopped() -> None:
    view = settled(group([member("a")], {**OWNED, T3: ""}, changed={"t": TopicChange.UNREADABLE}))
    assert decided(view) == []


def test_a_deleted_topic_is_dropped_a_while_after_it_was_first_seen_so() -> None:
    view = group([], FREE, topics={}, changed={"t": TopicChange.DELETED}, leftovers={"t": Leftovers(offsets=OFFSETS)})
    steps = Steps()
    assert decided(view, steps) == []
    assert steps.last.topics.wake_at_ms(NOW) == NOW + DELETED_MS
    assert decided(view, steps, NOW + DELETED_MS - 1) == []
    dropped = DropTopic(topic="t", again=False, offsets=OFFSETS, why="the topic was deleted")
    assert decided(view, steps, NOW + DELETED_MS) == [dropped]


def test_a_deleted_topic_with_an_operators_node_is_left() -> None:
    left = {"t": Leftovers(offsets=OFFSETS, strange=("/x",))}
    view = group([], FREE, topics={}, changed={"t": TopicChange.DELETED}, leftovers=left)
    steps = Steps()
    assert decided(view, steps) == decided(view, steps, NOW + DELETED_MS) == []


def test_of_many_topics_only_so_many_go_in_one_step() -> None:
    changed = {f"t{n}": TopicChange.RECREATED for n in range(DROPS_MAX + 5)}
    found = drops(GroupView(group="g", changed=changed), TopicMemory(), lambda p, owner: True, (), NOW)
    assert found == [LookUpTopic(topic=topic, why=AGAIN) for topic in sorted(changed)[:DROPS_MAX]]
