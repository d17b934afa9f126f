"""The switch of the topics' source: what is compared, what is written, and what is left wherever it breaks off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import CrashError, MemoryTree
from zkcoord.core.topic_answers import Broker
from zkcoord.core.topic_mirror import Mirror, Topic
from zkcoord.errors import FencedError, SchemaError, UnavailableError, UsageError
from zkcoord.migrate import Rehearsal, current, downgrade, upgrade
from zkcoord.migrate.topics import ClusterTopics, TopicSwitch
from zkcoord.tree.paths import DRAFT, LAYOUTS, layout_named
from zkcoord.tree.schema import encode_schema
from zkcoord.tree.snapshot import Read
from zkcoord.tree.topic import MIRRORED_CZXID, Mark, MarkSeen, TopicChange, change_of, decode_mark, encode_mark
from zkcoord.tree.topic_mirror import mirror_of

CLICKS = Topic(topic_id="idC", partitions={0: (1,), 1: (2,)})
VIEWS = Topic(topic_id="idV", partitions={0: (2,)})
CLUSTER = Mirror(
    cluster_id="c1",
    topics={"clicks": CLICKS, "views": VIEWS},
    brokers={1: Broker("h1", 9092, "r1"), 2: Broker("h2", 9092)},
    whole=True,
)
OLD_MARK = Mark(incarnation=3, topic_id=None, czxid=1, root_czxid=1)  # of a broker of before 2.8


def tree_with(layout: str = "draft") -> MemoryTree:
    """A tree at the newest revision with one group, beside Kafka in ZooKeeper mode."""
    tree = MemoryTree()
    upgrade(tree, run_id="setup", tree_id="5e0b", layout=layout)
    for path in ("/cluster", "/brokers", "/brokers/topics", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/2"):
        tree.set(path, b"")
    tree.set("/cluster/id", b'{"version":"1","id":"c1"}')
    for name, topic in CLUSTER.topics.items():
        put_topic(tree, name, topic)
    place = LAYOUTS[layout]
    below = place.marks("g").split("/")
    for depth in range(2, len(below) + 1):
        if "/".join(below[:depth]) not in tree.nodes:
            tree.set("/".join(below[:depth]), b"")
    tree.set(place.mark("g", "clicks"), encode_mark(OLD_MARK))
    tree.set(place.mark("g", "views"), encode_mark(replace(OLD_MARK, topic_id="idV")))
    tree.commits.clear()
    return tree


def put_topic(tree: MemoryTree, name: str, topic: Topic) -> None:
    numbered = {str(n): list(ids) for n, ids in topic.partitions.items()}
    document = {"version": 3, "topic_id": topic.topic_id, "partitions": numbered}
    tree.set(f"/brokers/topics/{name}", json.dumps(document).encode())


def switch(tree: object, goal: str = "kafka", cluster: Mirror = CLUSTER, run: str = "ann", **more: object) -> bool:
    told = ClusterTopics(cluster=cluster, nameless=more.pop("nameless", ()))  # type: ignore[arg-type]
    return TopicSwitch(
        tree=tree,  # type: ignore[arg-type]
        goal=goal,
        ask=lambda: told,
        run_id=run,
        **more,  # type: ignore[arg-type]
    ).carry_out()


def mirror_in(tree: MemoryTree, layout: str = "draft") -> Mirror:
    place = layout_named(layout, "kafka")
    parents = (place.topics, place.brokers)
    paths = [*parents, *(f"{p}/{name}" for p in parents for name in tree.children(p))]
    return mirror_of({node.path: node for node in tree.read([Read(path) for path in paths])}, place, "c1")


def drops_nothing(tree: MemoryTree, layout: str = "draft") -> None:
    """What the coordinator of the present source makes of each mark is no other topic."""
    schema = current(tree)
    assert schema is not None
    for topic, present in CLUSTER.topics.items():
        mark = decode_mark(tree.data()[LAYOUTS[layout].mark("g", topic)])
        czxid = MIRRORED_CZXID if schema.topics == "kafka" else 1
        now = Mark(incarnation=1, topic_id=present.topic_id, czxid=czxid, root_czxid=1)
        assert mark is not None and mark.incarnation == 3
        assert change_of(MarkSeen(mark, 0), now) in (None, TopicChange.RENEWED)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_switch_completes_marks_mirrors_all_topics_and_then_names_the_source(layout: str) -> None:
    tree = tree_with(layout)
    told: list[str] = []
    assert switch(tree, report=lambda batch: told.append(batch.why)) is True
    schema = current(tree)
    assert schema is not None
    assert (schema.topics, schema.cluster_id, schema.migration, schema.revision) == ("kafka", "c1", None, "0003")
    assert mirror_in(tree, layout) == CLUSTER
    assert decode_mark(tree.data()[LAYOUTS[layout].mark("g", "clicks")]) == replace(OLD_MARK, topic_id="idC")
    assert told[0] == "begin topics zookeeper -> topics kafka"
    assert told[-1] == "end topics zookeeper -> topics kafka"
    assert tree.data()["/zkcoord/epoch"] == b"1"
    drops_nothing(tree, layout)
    assert switch(tree) is False


def test_the_way_back_names_the_source_and_drops_nothing() -> None:
    tree = tree_with()
    switch(tree)
    assert switch(tree, "zookeeper", run="bob") is True
    schema = current(tree)
    assert schema is not None
    assert (schema.topics, schema.cluster_id, schema.migration) == ("zookeeper", "", None)
    assert b"topics" not in tree.data()["/zkcoord/schema"]
    drops_nothing(tree)
    assert switch(tree, run="cis") is True
    assert mirror_in(tree) == CLUSTER


def test_a_dry_run_writes_nothing() -> None:
    tree = tree_with()
    before = dict(tree.nodes)
    assert switch(Rehearsal(tree)) is True
    assert tree.nodes == before


DIFFERENT = {
    "not in Kafka": replace(CLUSTER, topics={"clicks": CLICKS}),
    "not in ZooKeeper": replace(CLUSTER, topics={**CLUSTER.topics, "x": VIEWS}),
    "is idV in ZooKeeper, idW in Kafka": replace(
        CLUSTER, topics={"clicks": CLICKS, "views": replace(VIEWS, topic_id="idW")}
    ),
    "1 partitions in ZooKeeper, 2 in Kafka": replace(
        CLUSTER, topics={"clicks": CLICKS, "views": replace(VIEWS, partitions={0: (1,), 1: (1,)})}
    ),
}


@pytest.mark.parametrize("words", DIFFERENT)
def test_it_is_refused_with_the_differences_and_carried_out_if_they_are_accepted(words: str) -> None:
    tree = tree_with()
    before = dict(tree.nodes)
    with pytest.raises(UsageError, match=words):
        switch(tree, cluster=DIFFERENT[words])
    assert tree.nodes == before
    assert switch(tree, cluster=DIFFERENT[words], accepts=True) is True
    assert mirror_in(tree) == replace(DIFFERENT[words], whole=False)


def test_f207_an_accepted_answer_removes_nothing_of_a_mirror_and_makes_it_partial() -> None:
    tree = tree_with()
    switch(tree)
    switch(tree, "zookeeper")
    nothing = replace(CLUSTER, topics={}, brokers={})
    assert switch(tree, cluster=nothing, accepts=True) is True
    assert mirror_in(tree) == replace(CLUSTER, whole=False)


OFFSETS = "__consumer_offsets"
INTERNAL_DIFFERS = {
    "another id": (Topic(topic_id="idA", partitions={0: (1,)}), Topic(topic_id="idB", partitions={0: (1,)})),
    "not in ZooKeeper": (None, Topic(topic_id="idB", partitions={0: (1,)})),
    "not in Kafka": (Topic(topic_id="idA", partitions={0: (1,)}), None),
}


def internal_differs(tree: MemoryTree, name: str) -> Mirror:
    """Make Kafka's internal topic differ; what Kafka tells."""
    in_zookeeper, in_kafka = INTERNAL_DIFFERS[name]
    if in_zookeeper is not None:
        put_topic(tree, OFFSETS, in_zookeeper)
    return CLUSTER if in_kafka is None else replace(CLUSTER, topics={**CLUSTER.topics, OFFSETS: in_kafka})


@pytest.mark.parametrize("name", INTERNAL_DIFFERS)
def test_f167_an_unread_internal_topic_that_differs_is_told_and_lets_the_switch_pass(
    name: str,
) -> None:
    tree, notes = tree_with(), list[str]()
    cluster = internal_differs(tree, name)
    assert switch(tree, cluster=cluster, notes=notes) is True
    assert mirror_in(tree) == cluster
    assert [note.partition(" is ")[0] for note in notes] == [f"topic {OFFSETS}"]
    drops_nothing(tree)


def test_f167_an_internal_topic_that_differs_prevents_the_switch_if_a_group_has_read_it() -> None:
    tree, notes = tree_with(), list[str]()
    cluster = internal_differs(tree, "another id")
    tree.set(DRAFT.mark("g", OFFSETS), encode_mark(replace(OLD_MARK, topic_id="idA")))
    before = dict(tree.nodes)
    with pytest.raises(UsageError, match="topic __consumer_offsets is idA in ZooKeeper, idB in Kafka"):
        switch(tree, cluster=cluster, notes=notes)
    assert (tree.nodes, notes) == (before, [])


def refusals(tree: MemoryTree, name: str) -> tuple[dict[str, object], str]:
    """Make the tree so that the switch is refused; what it is given, and what it says."""
    if name == "cluster":
        tree.set("/cluster/id", b'{"version":"1","id":"c2"}')
        return {}, "says 'c2'"
    if name == "no cluster id":
        del tree.nodes["/cluster/id"]
        return {}, "there is no /cluster/id"
    if name == "nameless":
        return {"nameless": ("views",)}, "tells no id of views"
    if name == "no id in ZooKeeper":
        tree.set("/brokers/topics/clicks", b'{"version":1,"partitions":{"0":[1],"1":[2]}}')
        return {}, "/brokers/topics/clicks has no id"
    if name == "created again":
        tree.set(DRAFT.mark("g", "clicks"), encode_mark(replace(OLD_MARK, czxid=77)))
        return {"accepts": True}, "was created again since"
    if name == "old members":
        return {"obstacles": lambda: ["group g has the old consumer x"]}, "old consumers read /brokers/topics"
    tree.set("/zkcoord/schema", tree.data()["/zkcoord/schema"].replace(b"0003", b"0002"))
    return {}, "zkcoord migrate upgrade"


@pytest.mark.parametrize(
    "name", ["cluster", "no cluster id", "nameless", "no id in ZooKeeper", "created again", "old members", "revision"]
)
def test_it_is_refused_before_anything_is_written(name: str) -> None:
    tree = tree_with()
    given, words = refusals(tree, name)
    before = dict(tree.nodes)
    with pytest.raises(UsageError, match=words):
        switch(tree, **given)
    assert tree.nodes == before


def test_the_way_back_is_refused_while_a_broker_that_answers_is_not_in_zookeeper() -> None:
    tree = tree_with()
    switch(tree)
    del tree.nodes["/brokers/ids/2"]
    before = dict(tree.nodes)
    with pytest.raises(UsageError, match="brokers 2 answer, and are not in /brokers/ids"):
        switch(tree, "zookeeper")
    assert tree.nodes == before


def test_the_way_back_is_refused_with_brokers_of_another_cluster_than_the_mirrors() -> None:
    """Also where ZooKeeper is theirs."""
    tree = tree_with()
    switch(tree)
    tree.set("/cluster/id", b'{"version":"1","id":"c2"}')
    before = dict(tree.nodes)
    with pytest.raises(UsageError, match="of the cluster 'c2', the tree's topics of 'c1'"):
        switch(tree, "zookeeper", cluster=replace(CLUSTER, cluster_id="c2"))
    assert tree.nodes == before


def test_a_tree_whose_brokers_nodes_are_gone_already_takes_kafkas_word_and_drops_nothing() -> None:
    tree = tree_with()
    for path in [path for path in tree.nodes if path.startswith("/brokers")]:
        del tree.nodes[path]
    with pytest.raises(UsageError, match="topic clicks is not in ZooKeeper; topic views is not in ZooKeeper"):
        switch(tree)
    assert switch(tree, accepts=True) is True
    assert mirror_in(tree) == replace(CLUSTER, whole=False)
    drops_nothing(tree)


def test_a_mirror_of_an_earlier_switch_is_brought_up_to_date_and_what_it_had_is_over() -> None:
    tree = tree_with()
    switch(tree)
    switch(tree, "zookeeper")
    clicks = replace(CLICKS, topic_id="idD")
    now = replace(CLUSTER, topics={"clicks": clicks}, brokers={1: CLUSTER.brokers[1]})
    put_topic(tree, "clicks", clicks)
    del tree.nodes["/brokers/topics/views"]
    switch(tree, cluster=now)
    assert mirror_in(tree) == replace(now, over=(("clicks", "idC"), ("views", "idV")))


def test_a_later_switch_completes_marks_too_beside_the_mirror_of_an_earlier_one() -> None:
    tree = tree_with()
    switch(tree)
    switch(tree, "zookeeper")
    tree.set(LAYOUTS["draft"].mark("g", "clicks"), encode_mark(OLD_MARK))
    assert switch(tree) is True
    assert decode_mark(tree.data()[LAYOUTS["draft"].mark("g", "clicks")]) == replace(OLD_MARK, topic_id="idC")


def test_f206_a_run_that_another_one_took_over_writes_nothing_more_and_says_what_to_look_at() -> None:
    for goal, what in (("kafka", r"took it over \(bob\)"), ("zookeeper", "gave it up")):
        tree = tree_with()

        def meanwhile(number: int, tree: MemoryTree = tree, goal: str = goal) -> None:
            if number == 1:  # the first one has begun
                tree.meanwhile = lambda _: None
                stops_at = len(tree.commits) + (1 if goal == "kafka" else 9)
                tree.fault = lambda n: "crash-before" if n == stops_at else ""
                with suppress(CrashError):
                    switch(tree, goal, run="bob")
                tree.fault = lambda _: ""

        tree.meanwhile = meanwhile
        with pytest.raises(FencedError, match=f"another run {what}: .*zkcoord migrate current"):
            switch(tree)
        assert [commit.why for commit in tree.commits if "resume" in commit.why] == (
            ["resume topics zookeeper -> topics kafka"] if goal == "kafka" else []
        )
        drops_nothing(tree)


def test_f205_a_switch_that_broke_off_is_given_up_without_an_answer_of_kafkas() -> None:
    tree = tree_with()
    tree.fault = lambda number: "crash-before" if number == 1 else ""
    with pytest.raises(CrashError):
        switch(tree)

    def silent() -> ClusterTopics:
        raise UnavailableError("no broker answers")

    given_up = TopicSwitch(tree=tree, goal="zookeeper", ask=silent, run_id="bob")
    assert (given_up.carry_out(), given_up.told) == (True, None)
    schema = current(tree)
    assert schema is not None and (schema.topics, schema.migration) == ("zookeeper", None)


def test_a_switch_that_another_run_ends_first_is_no_second_term_of_office() -> None:
    tree = tree_with()

    def faster(_: int) -> None:
        tree.meanwhile = lambda _: None
        switch(tree, run="bob")

    tree.meanwhile = faster
    assert switch(tree) is True
    assert tree.data()["/zkcoord/epoch"] == b"1"
    assert [commit.why for commit in tree.commits].count("begin topics zookeeper -> topics kafka") == 2  # one refused


def test_a_tree_without_a_known_cluster_goes_back_and_odd_broker_nodes_are_ignored() -> None:
    """A tree is made for topics of Kafka before any broker has answered."""
    tree = tree_with()
    schema = current(tree)
    assert schema is not None
    tree.set("/zkcoord/schema", encode_schema(replace(schema, topics="kafka")))
    tree.set("/brokers/ids/seqid", b"")
    assert switch(tree, "zookeeper") is True


def test_an_old_member_that_joins_meanwhile_ends_the_run() -> None:
    tree = tree_with()
    asked: list[int] = []

    def obstacles() -> Sequence[str]:
        asked.append(1)
        return ["group g has the old consumer x"] if len(asked) > 2 else []

    with pytest.raises(UsageError, match="joined meanwhile"):
        switch(tree, obstacles=obstacles)
    schema = current(tree)
    assert schema is not None and (schema.topics, schema.migration) == ("zookeeper", None)
    drops_nothing(tree)


@pytest.mark.parametrize("when", ["before", "after", "crash-before", "crash-after"])
@pytest.mark.parametrize("goal", ["kafka", "zookeeper"])
def test_f157_a_switch_that_breaks_off_drops_nothing_and_can_be_finished_or_given_up(goal: str, when: str) -> None:
    for at in range(8):
        for finishes in (True, False):
            tree = tree_with()
            if goal == "zookeeper":
                switch(tree)
            start = len(tree.commits)
            tree.fault = lambda number, start=start, at=at: when if number == start + at else ""  # type: ignore[misc]
            try:
                switch(tree, goal)
            except CrashError:
                schema = current(tree)
                assert schema is not None
                assert schema.topics != "kafka" or mirror_in(tree) == CLUSTER
                drops_nothing(tree)
                other = "zookeeper" if goal == "kafka" else "kafka"
                switch(tree, goal if finishes else other, run="bob")
            schema = current(tree)
            assert schema is not None and schema.migration is None
            drops_nothing(tree)


def test_another_migration_must_be_ended_first_and_a_way_back_of_revisions_is_refused() -> None:
    tree = tree_with()
    schema = current(tree)
    assert schema is not None
    with pytest.raises(SchemaError, match="another migration is in progress, 0002 -> 0003"):
        other = {"from": "0002", "to": "0003", "run": "x"}
        tree.set("/zkcoord/schema", encode_schema(replace(schema, migration=other)))
        switch(tree)
    tree.set("/zkcoord/schema", encode_schema(schema))
    switch(tree)
    with pytest.raises(UsageError, match="zkcoord migrate topics --to zookeeper --bootstrap-servers HOST:PORT"):
        downgrade(tree, run_id="ann", goal="0002")
