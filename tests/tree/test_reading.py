"""The reads of a group: from its roots down, until an answer names nothing new."""

from __future__ import annotations

from collections.abc import Iterable

from zkcoord.serving.group_watch import GroupWatch
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import DRAFT, LEGACY, Layout
from zkcoord.tree.reading import below, roots, wants
from zkcoord.tree.snapshot import Kind, Node, Read, Stat, parents

GROUP = "/consumers/groups/g"
RECORD = "/zkcoord/groups/g"
STANDING = (
    f"{GROUP}/ids/a",
    f"{GROUP}/owners/t/0",
    f"{GROUP}/owners/t/10",
    f"{GROUP}/owners/t/strange",
    f"{GROUP}/offsets/t/0",
    f"{GROUP}/channel/a/0000000003",
    f"{GROUP}/channel/b/evicted",
    f"{GROUP}/channel/b/refused",
    f"{RECORD}/state/instances/i",
)
"""A group's nodes, without those above them."""

LISTS = (
    *(f"{GROUP}/{name}" for name in ("ids", "owners", "channel", "owners/t", "channel/a", "channel/b")),
    f"{RECORD}/state/instances",
)
DATA = (
    *(f"{GROUP}/{name}" for name in ("ids/a", "owners", "owners/t", "owners/t/0", "owners/t/10", "offsets")),
    *(
        f"{GROUP}/{name}"
        for name in ("offsets/t", "channel/a", "channel/a/0000000003", "channel/b", "channel/b/evicted")
    ),
    *(f"{RECORD}{name}" for name in ("", "/state", "/state/instances/i")),
)
NAMED = {*(Read(path, Kind.CHILDREN) for path in LISTS), *(Read(path) for path in DATA)}


def answers(reads: Iterable[Read], nodes: Iterable[str] = STANDING) -> list[Node]:
    """The answers of a tree with these nodes and their parents."""
    standing = {path for node in nodes for path in (node, *parents(node))}
    found = []
    for path, kind, _ in reads:
        below = {each[len(path) + 1 :].partition("/")[0] for each in standing if each.startswith(f"{path}/")}
        stat = Stat(0, 1, 0) if path in standing else None
        found.append(Node(path, kind, stat, b"", tuple(sorted(below)) if kind is Kind.CHILDREN else ()))
    return found


def by_a_tool(*more: Read, layout: Layout = DRAFT, nodes: Iterable[str] = STANDING) -> list[list[Read]]:
    """The reads of a tool, request by request."""
    asked, reads = [], [*(Read(want.path, want.kind) for want in roots("g", layout)), *more]
    while reads:
        asked.append(reads)
        reads = wants(answers(reads, nodes), layout)
    return asked


def by_a_coordinator() -> set[Read]:
    """The reads of a coordinator, without their watches."""
    tracker, asked = Tracker(), set[Read]()
    watch = GroupWatch.begin("g", DRAFT, tracker)
    while reads := tracker.take(1):
        asked |= {Read(read.path, read.kind) for read in reads}
        fresh = tracker.answered(1, answers(reads))
        watch.read([(address, node) for node in fresh if (address := DRAFT.parse(node.path)) is not None])
    return asked


def test_a_tool_reads_all_that_a_group_has_in_three_requests() -> None:
    asked = by_a_tool()
    assert {read for reads in asked for read in reads} == NAMED
    assert sum(map(len, asked)) == len(NAMED)
    assert len(asked) == 3


def test_a_coordinator_follows_what_a_tool_reads() -> None:
    assert by_a_coordinator() == NAMED


def test_offsets_are_read_by_who_asks_for_their_list() -> None:
    offsets = Read(f"{GROUP}/offsets", Kind.CHILDREN)
    more = {read for reads in by_a_tool(offsets) for read in reads} - NAMED
    assert more == {offsets, Read(f"{GROUP}/offsets/t", Kind.CHILDREN), Read(f"{GROUP}/offsets/t/0")}


def test_members_are_listed_before_owners_and_these_before_channels_and_a_list_before_its_data() -> None:
    first, second, *_ = by_a_tool()
    lists = [read.path for read in first if read.kind is Kind.CHILDREN]
    assert lists[:3] == [f"{GROUP}/ids", f"{GROUP}/owners", f"{GROUP}/channel"]
    assert second.index(Read(f"{GROUP}/channel/a", Kind.CHILDREN)) < second.index(Read(f"{GROUP}/channel/a"))


def test_the_record_and_lists_written_by_others_are_watched() -> None:
    watched = [want.path for want in roots("g", DRAFT) if want.watch]
    assert watched == [f"{GROUP}/ids", f"{GROUP}/channel", RECORD]


def test_beside_old_consumers_owners_are_in_the_old_tree_and_marks_beside_the_state() -> None:
    nodes = ("/consumers/g/owners/t/0", "/zkcoord/groups/g/state/marks/t", "/zkcoord/channels/g/a/0000000001")
    named = {read.path for reads in by_a_tool(layout=LEGACY, nodes=nodes) for read in reads}
    assert {*nodes, "/zkcoord/channels/g/a"} <= named


def test_an_owner_that_an_own_multi_wrote_is_told_by_its_reply_and_not_read_again() -> None:
    mark = DRAFT.mark("g", "t")
    address = DRAFT.parse(mark)
    assert address is not None
    assert [want.by_writes for want in below(address, mark, ("0", "10"), DRAFT)] == [True, True]
