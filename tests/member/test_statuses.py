"""The announced ranges of other consumers, as a member reads them when it has claimed."""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.member.view import Holder
from zkcoord.core.model import TopicPartition
from zkcoord.core.state import Announced
from zkcoord.member.statuses import Statuses
from zkcoord.shell.ports import Read
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.snapshot import Node, Stat
from zkcoord.tree.status import Status, encode_status

T0 = TopicPartition("t", 0)
ABOVE = LEGACY.channels_of("g")
RANGE = Announced(5, 7, 1, 1)


def test_a_status_that_nobody_can_parse_is_left_out_and_read_again_by_the_next_look_up() -> None:
    tracker = Tracker()
    statuses = Statuses(MemberPaths(layout=LEGACY, group="g", consumer_id="g_me"), tracker)
    for token, data, found in ((1, b"{", {}), (11, encode_status(Status(batch={T0: RANGE})), {T0: (RANGE,)})):
        statuses.look_up()
        for number in (token, token + 1):
            reads = tracker.take(number)
            nodes = [Node(read.path, read.kind, Stat(0, 1, 0), data, children=("g_a",)) for read in reads]
            assert all(statuses.take(node) for node in tracker.answered(number, nodes))
        assert statuses.found == found


def test_all_statuses_are_read_once_for_each_look_up_and_not_followed() -> None:
    tracker = Tracker()
    statuses = Statuses(MemberPaths(layout=LEGACY, group="g", consumer_id="g_me"), tracker)
    told = {"g_me": {}, "g_a": {T0: RANGE}, "g_b": {}}
    for token in (1, 11):
        statuses.look_up()
        assert not statuses.found
        asked: list[str] = []
        for number in (token, token + 1):
            reads = tracker.take(number)
            asked += [read.path for read in reads]
            nodes = [
                Node(
                    read.path,
                    read.kind,
                    Stat(0, 1, 0),
                    encode_status(Status(batch=told.get(read.path.rpartition("/")[2], {}))),
                    children=tuple(told) if read.path == ABOVE else (),
                )
                for read in reads
            ]
            assert all(statuses.take(node) for node in tracker.answered(number, nodes))
        assert sorted(asked) == [ABOVE, f"{ABOVE}/g_a", f"{ABOVE}/g_b"]
        assert statuses.found == {T0: (RANGE,)}
        tracker.touch_all()  # the link was broken
        assert not tracker.asks


def test_f352_members_that_hold_partitions_are_found_with_the_versions_of_their_statuses() -> None:
    """A status that does not name all that its member holds counts as one that may name any partition."""
    tracker = Tracker()
    statuses = Statuses(MemberPaths(layout=LEGACY, group="g", consumer_id="g_me"), tracker)
    held = {7: {"t": "0-1"}}
    told = {
        "g_a": Status(held=held),
        "g_b": Status(),
        "g_c": Status(held=held, held_cut=1),
        "g_d": Status(held={7: {"t": "0-9999999"}}),
        "g_me": Status(held=held),
    }
    for token in (1, 11):
        statuses.look_up()
        assert not statuses.holders
        for number in (token, token + 1):
            for node in tracker.answered(number, [read_as(told, token, read) for read in tracker.take(number)]):
                statuses.take(node)
        both = frozenset({T0, TopicPartition("t", 1)})
        found = {"g_a": Holder(token, both), "g_c": Holder(token, None), "g_d": Holder(token, None)}
        assert statuses.holders == found


def read_as(told: Mapping[str, Status], version: int, read: Read) -> Node:
    """The answer to a read of the list of channels, or of one of these statuses."""
    names = tuple(told) if read.path == ABOVE else ()
    status = told.get(read.path.rpartition("/")[2], Status())
    return Node(read.path, read.kind, Stat(version, 1, 0), encode_status(status), children=names)
