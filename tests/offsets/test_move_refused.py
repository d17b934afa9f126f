"""Groups that are not moved, each with the reason, before anything is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.offsets.two_trees import OLD, OURS, P0, Pair, put, whole
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import DEFAULT_RECORD
from zkcoord.errors import CorruptError, UsageError
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.snapshot import Read

ELSEWHERE = Moved(state=MoveState.GONE, tree="cc", address="zk-cc:2181", run="x")
BACK, FORTH = (  # the same two trees, and a move in the other direction that has not ended
    encode_record(replace(DEFAULT_RECORD, moved=Moved(state=state, tree=tree, address=f"zk-{tree}:2181", run="x")))
    for state, tree in ((MoveState.ARRIVING, "bb"), (MoveState.LEAVING, "aa"))
)
TOPIC = "/brokers/topics/clicks"


@pytest.mark.parametrize(
    ("where", "nodes", "error", "why"),
    [
        (1, {DRAFT.record("g"): b"{}"}, UsageError, "there is a group g at zk-bb:2181: delete it there first"),
        (1, {DRAFT.offset("g", P0): b"1"}, UsageError, "there is a group g with offsets at zk-bb:2181"),
        (1, {DRAFT.registration("g", "c"): OURS}, UsageError, "there is a group g with consumers .c. at zk-bb:2181"),
        (0, {DRAFT.registration("g", "old"): OLD}, UsageError, "is read by old, and cannot be paused"),
        (0, {DRAFT.record("g"): b'{"wish":{"reset":{"run":"x"}}}'}, UsageError, "a reset is under way"),
        (0, {DRAFT.record("g"): b'{"wish":{"delete":{"run":"x"}}}'}, UsageError, "a delete is under way: end it first"),
        (0, {DRAFT.record("g"): b'{"offsets":{"migration":{"goal":"dual"}}}'}, UsageError, "between stores: end that"),
        (0, {DRAFT.record("g"): b'{"wish":{"pause":{"who":"coordinator"}}}'}, UsageError, "a reset that broke off"),
        (0, {DRAFT.record("g"): b'{"wish":{"pause":{"handed_over":"begun"}}}'}, UsageError, "group take-back g`"),
        (
            0,
            {DRAFT.record("g"): encode_record(replace(DEFAULT_RECORD, moved=ELSEWHERE))},
            UsageError,
            "zk-cc:2181: end",
        ),
        (
            1,
            {DRAFT.record("g"): encode_record(replace(DEFAULT_RECORD, moved=ELSEWHERE))},
            UsageError,
            "zk-cc:2181: end",
        ),
        (0, {DRAFT.record("g"): BACK}, UsageError, "is arriving from zk-bb:2181: end that move first"),
        (1, {DRAFT.record("g"): FORTH}, UsageError, "at zk-bb:2181 is being moved to zk-aa:2181: end that move first"),
        (0, {DRAFT.offset("g", P0): b"many"}, CorruptError, "offsets/clicks/0: bad offset"),
        (0, {DRAFT.record("g"): b"{"}, CorruptError, "/zkcoord/groups/g at zk-aa:2181: bad group record"),
        (1, {"/brokers/topics": b"", TOPIC: None}, UsageError, "topic clicks does not exist at zk-bb:2181"),
    ],
)
def test_a_group_that_cannot_be_moved_is_refused_with_the_reason_before_any_write(
    where: int, nodes: dict[str, bytes | None], error: type[Exception], why: str
) -> None:
    pair = Pair.of()
    tree = pair.memory(where)
    put(tree, {path: data for path, data in nodes.items() if data is not None})
    for path in [path for path, data in nodes.items() if data is None]:
        del tree.nodes[path]
    for each in (pair.memory(0), pair.memory(1)):
        each.commits.clear()

    with pytest.raises(error, match=why):
        pair.move().survey()

    assert pair.memory(0).commits == pair.memory(1).commits == []


def test_a_topic_that_is_another_one_there_is_refused_and_a_tree_without_kafka_is_told() -> None:
    pair = Pair.of()
    for number, topic_id in enumerate(("x", "y")):
        document = {"version": 3, "partitions": {"0": [1]}, "topic_id": topic_id}
        pair.memory(number).set(TOPIC, json.dumps(document).encode())
    with pytest.raises(UsageError, match="topic clicks at zk-bb:2181 is another one"):
        pair.move().survey()
    for path in (TOPIC, "/brokers/topics", "/brokers"):
        del pair.memory(1).nodes[path]
    assert pair.move().survey().notes == [
        "zk-bb:2181 has no /brokers/topics yet: Kafka must be there before consumers start"
    ]


@pytest.mark.parametrize("without", [0, 1])
def test_a_topic_whose_id_only_one_side_knows_is_no_other_one(without: int) -> None:
    """Brokers before 2.8 write no topic ids."""
    pair = Pair.of()
    document = {"version": 3, "partitions": {"0": [1]}, "topic_id": "x"}
    pair.memory(1 - without).set(TOPIC, json.dumps(document).encode())
    assert pair.move().survey().offsets == 2


def test_offsets_of_a_topic_that_is_gone_in_both_places_prevent_no_move() -> None:
    pair = Pair.of()
    for number in (0, 1):
        del pair.memory(number).nodes[TOPIC]
    whole(pair.move())
    assert pair.offsets(1) == {"0": b"100", "1": b"7"}


def test_a_group_without_a_record_is_moved_too() -> None:
    pair = Pair.of()
    del pair.memory(0).nodes[DRAFT.instance("g", "i1")]
    for path in (DRAFT.instances("g"), DRAFT.state("g"), DRAFT.record("g")):
        del pair.memory(0).nodes[path]
    whole(pair.move())
    assert (pair.readable(), pair.offsets(1)) == ([False, True], {"0": b"100", "1": b"7"})


def test_a_missing_right_is_told_with_the_path_and_the_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    from zkcoord.shell.ports import CommitDone, Outcome

    pair = Pair.of()
    pair.move().begin()
    denied: Callable[..., CommitDone] = lambda _: CommitDone(0, Outcome.REFUSED, failed_at=0, reason="NoAuth")  # noqa: E731
    monkeypatch.setattr(pair.memory(1), "commit", denied)
    with pytest.raises(UsageError, match="/zkcoord/groups/g at zk-bb:2181: no right to write there"):
        pair.move().carry_out()
    assert pair.memory(0).read([Read(DRAFT.record("g"))])[0].exists
