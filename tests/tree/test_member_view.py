"""From a member's nodes to its view of itself: which read replaces which value, and which data cannot be read."""

from __future__ import annotations

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.status import MemberStatus
from zkcoord.core.member.view import NOBODY, NOWHERE, Position, Received
from zkcoord.core.model import TopicPartition
from zkcoord.core.view import Owner
from zkcoord.tree.command import encode_command, refusal
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.member_view import MemberNodes, fold, follow, let_go
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.snapshot import Kind, Node, Stat

PATHS = MemberPaths(layout=DRAFT, group="g", consumer_id="g_me-1-00000000")
ME = "g_me-1-00000000-0"
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FIRST, SECOND = "0000000000", "0000000001"
STOP = Command(option=Option.STOP_FETCHER, ownership={T0: ""})
EMPTY = MemberNodes(paths=PATHS)


def data(path: str, text: bytes = b"", version: int = 0) -> Node:
    """A node's data, as read."""
    return Node(path, Kind.DATA, Stat(version, 1, 0), text)


def absent(path: str, kind: Kind = Kind.DATA) -> Node:
    """No node, as read."""
    return Node(path, kind, None)


def listed(*names: str, made: int | None = None) -> Node:
    """The channel's list. `made` is the number of children that were ever created there."""
    count = len(names) if made is None else made
    return Node(PATHS.channel, Kind.CHILDREN, Stat(0, 1, 0, child_changes=2 * count - len(names)), children=names)


def command(sequence: str, text: bytes | None = None) -> Node:
    """A command's node."""
    return data(PATHS.command(sequence), encode_command(STOP) if text is None else text)


def received(sequence: str) -> Received:
    """The same command in the view."""
    return Received(sequence=sequence, command=STOP, size=len(encode_command(STOP)))


def test_registration_and_channel_are_missing_only_while_they_are_seen_to_be() -> None:
    nodes = fold(EMPTY, [absent(PATHS.registration), absent(PATHS.channel, Kind.CHILDREN)])
    assert nodes.view.missing == {PATHS.registration, PATHS.channel}
    assert nodes.view.gone
    back = fold(nodes, [data(PATHS.registration), listed()])
    assert not back.view.gone
    assert fold(EMPTY, [listed("evicted")]).view.gone


def test_a_listed_command_is_unread_until_it_is_read_and_gone_when_either_says_so() -> None:
    nodes = fold(EMPTY, [listed(FIRST, SECOND)])
    assert nodes.view.commands == {FIRST: None, SECOND: None}
    nodes = fold(nodes, [command(FIRST), command(SECOND)])
    assert nodes.view.commands == {FIRST: received(FIRST), SECOND: received(SECOND)}
    assert fold(nodes, [absent(PATHS.command(FIRST))]).view.commands == {SECOND: received(SECOND)}
    assert fold(nodes, [listed(SECOND, made=2)]).view.commands == {SECOND: received(SECOND)}


def test_a_command_that_comes_beside_the_list_counts_whatever_comes_first() -> None:
    for answers in ([command(FIRST), listed(FIRST)], [listed(FIRST), command(FIRST)]):
        nodes = fold(EMPTY, answers)
        assert nodes.view.commands == {FIRST: received(FIRST)}
        assert (nodes.made, nodes.ahead) == (1, None)
    early = fold(fold(EMPTY, [command(FIRST)]), [listed(FIRST, SECOND)])
    assert early.view.commands == {FIRST: received(FIRST), SECOND: None}
    assert fold(EMPTY, [command(SECOND), listed(FIRST, SECOND)]).view.commands == {FIRST: None, SECOND: None}


def test_a_command_that_nobody_understands_has_an_error_and_a_refused_one_none() -> None:
    nodes = fold(EMPTY, [listed(FIRST, SECOND, "refused", made=3)])
    assert nodes.view.refused_mark
    nodes = fold(nodes, [command(FIRST, b"?"), command(SECOND, refusal(b"?", "no JSON"))])
    first, second = nodes.view.commands.values()
    assert first is not None
    assert second is not None
    assert (first.command, second.command) == (None, None)
    assert "no JSON" in first.error
    assert second.error == ""


def test_owners_and_offsets_are_fresh_until_a_decision_has_seen_them() -> None:
    answers = [data(PATHS.owner(T0), ME.encode(), 4), data(PATHS.offset(T0), b"17", 2), absent(PATHS.offset(T1))]
    nodes = fold(EMPTY, answers)
    assert nodes.view.owners == {T0: Owner(ME, 4)}
    assert nodes.view.positions == {T0: Position(17, 2), T1: NOWHERE}
    assert nodes.view.fresh == {T0, T1}
    assert fold(nodes, [absent(PATHS.offset(T1))]).view.fresh == {T0, T1}  # from both batches before the decision
    gone = let_go(fold(nodes, [absent(PATHS.owner(T0))]), [T1])
    assert (gone.view.owners, gone.view.positions) == ({T0: NOBODY}, {T0: Position(17, 2)})
    assert gone.view.fresh == {T0}
    assert nodes.view.owners == {T0: Owner(ME, 4)}  # the earlier values have not changed


def test_a_starts_owners_count_until_something_is_read() -> None:
    told = follow(EMPTY, {T0: Owner(ME, 0)})
    assert told.view.owners == {T0: Owner(ME, 0)}
    assert fold(told, [data(PATHS.owner(T0), b"", 1)]).view.owners == {T0: Owner("", 1)}


def test_an_unreadable_offset_is_no_offset_and_names_its_path() -> None:
    at = fold(EMPTY, [data(PATHS.offset(T0), b"abc", 2)]).view.positions[T0]
    assert (at.offset, at.version) == (None, 2)
    assert at.problem is not None
    assert at.problem.startswith(f"{PATHS.offset(T0)}: ")


def test_the_status_is_known_only_as_it_was_sent_last() -> None:
    status = MemberStatus(pinged=FIRST)
    nodes = fast_replace(EMPTY, sent=(b"{...}", status))
    said = fold(nodes, [data(PATHS.channel, b"{...}", 3)])
    assert (said.view.status, said.view.status_version) == (status, 3)
    other = fold(said, [data(PATHS.channel, b"{}", 4)])
    assert (other.view.status, other.view.status_version) == (None, 4)


def test_only_parents_that_are_seen_not_to_stand_are_missing() -> None:
    above, below = DRAFT.offsets("g"), DRAFT.topic_offsets("g", "t")
    assert fold(EMPTY, [data(above), absent(below)]).missing_parents([T0, T1]) == [below]
    assert fold(EMPTY, [absent(above), absent(below)]).missing_parents([T0]) == [above, below]
    assert EMPTY.missing_parents([T0]) == []
