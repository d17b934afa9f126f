"""Sentences of an inventory for people: what would go wrong in a group of old consumers, and what only a person
knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zkcoord.core.assignors.legacy.round_robin import ties
from zkcoord.core.given import shown
from zkcoord.core.words import some
from zkcoord.errors import CorruptError
from zkcoord.legacy.clients import MIXES, Library
from zkcoord.legacy.inventory import READERS, Cluster, GroupInventory, OldMember, assignor_input
from zkcoord.tree.registration import TOMBSTONE
from zkcoord.tree.topic_filter import INTERNAL, matches

NAMED_MAX = 3  # how many names of one kind a sentence spells out

_OFFSETS, _DUAL, _STRATEGY, _VERSION, _BROKER = "offsets", "dual_commit", "strategy", "kafka", "broker"


class Question(NamedTuple):
    """A value that a person must tell about a group: its key in the file, the value that the tree suggests (None:
    none), and the reason."""

    key: str
    suggested: str | int | bool | None
    why: str


def problems_of(found: GroupInventory) -> tuple[str, ...]:
    """Return what would go wrong, the worst first: each is a sentence that says who must act."""
    if found.kind == "0.7":
        return ("its members are of Kafka 0.7, which no later one can join: it is left alone, until they are upgraded",)
    return (
        *_of_a_move(found),
        *_of_copies(found),
        *_of_members(found),
        *_of_rebalances(found),
        *_of_round_robin(found),
        *_of_orphans(found),
        *_of_offsets(found),
        *_of_topics(found),
        *(f"{shown(path)[1:-1]}: {why}" for path, why in sorted(found.strange.items())),
    )


def questions_of(found: GroupInventory, broker: str | None = None) -> tuple[Question, ...]:
    """Return the values that a person must tell before the group can be adopted, in the order of the file.

    `broker`: the version that the brokers report; None: they were not asked, or do not report it.
    """
    brokers = () if broker is None else (Question(_BROKER, broker, "as the brokers tell it: their protocol version"),)
    return (
        *_stores(found),
        _strategy(found),
        Question(_VERSION, None, _versions(found)),
        Question("retries", 4, "rebalance.max.retries of the old members (4 unless they set it)"),
        Question("backoff_ms", 2_000, "their rebalance.backoff.ms (zookeeper.sync.time.ms, 2000, unless they set it)"),
        Question("auto_commit_interval_ms", 60_000, "their auto.commit.interval.ms (60000 unless they set it)"),
        _internal(found),
        *brokers,
    )


def _of_a_move(found: GroupInventory) -> Iterator[str]:
    if found.moved_to is not None:
        yield (
            f"zkcoord moved it to {shown(found.moved_to)}, or is about to: the node {TOMBSTONE} below ids keeps old "
            "members from reading in both places; leave it there"
        )


def _of_copies(found: GroupInventory) -> Iterator[str]:
    members = [member.consumer for member in found.members if not member.ephemeral]
    if members:
        yield (
            f"{_named(members, 'consumer')} registered in persistent nodes, copied or made by hand: nobody runs there, "
            "and old members leave a share to it for good; delete the nodes below ids"
        )
    owned = sorted(str(partition) for partition, claim in found.owners.items() if not claim.ephemeral)
    if owned:
        yield (
            f"{_named(owned, 'partition')} owned in persistent nodes, copied or made by hand: nobody can take them "
            "until the owner nodes are deleted"
        )


def _of_members(found: GroupInventory) -> Iterator[str]:
    for member in found.members:
        name, client = shown(member.consumer), member.client
        if client.library not in MIXES:
            known = client.library is not Library.UNKNOWN
            by = f"is a member by {client.library.value}" if known else "is of no library that is known here"
            yield (
                f"consumer {name} {by} ({client.why}): it may compute other shares than Kafka's own consumers; give it "
                "a group of its own before this one is adopted"
            )
        if len(member.refused_by) == len(READERS):
            yield (
                f"consumer {name}: {member.problem}; no old member can rebalance while it is registered: stop it, or "
                "correct its configuration"
            )
        elif member.problem is not None:
            yield (
                f"consumer {name}: {member.problem}; old members fail at this wildcard, or evaluate it by rules of "
                "their Java: what the group settles on cannot be told; whoever runs it should write it plainer"
            )
        elif member.refused_by:
            which = "1.0 and later" if READERS[-1] in member.refused_by else "before 1.0"
            yield (
                f"consumer {name}: members of Kafka {which} cannot read its registration, and cannot rebalance while "
                "it is there: whoever runs it must stop it, or make sure that the group has no such member"
            )
        elif member.wildcard is not None and not member.threads:
            twice = " (Kafka 1.0.1 to 1.1.1 escape a backslash twice)" if "\\\\" in member.wildcard else ""
            yield f"consumer {name}: its wildcard {shown(member.wildcard)} matches no topic{twice}"


def _of_rebalances(found: GroupInventory) -> Iterator[str]:
    unowned = found.unowned()
    if not unowned:
        return
    owned = found.owned()
    idle = [m.consumer for m in found.members if m.threads and not owned[m.consumer]]
    if idle:
        why = (
            f"{_named(idle, 'consumer')} registered without a partition: a rebalance failed there; restart one of them"
        )
    else:
        why = "a rebalance is going on, or failed; look again in ten seconds"
    yield f"{_named(list(map(str, unowned)), 'partition')} without an owner, though subscribed: {why}"


def _of_round_robin(found: GroupInventory) -> Iterator[str]:
    """Problems with round robin. There are none if the owners show that the members compute range."""
    if found.fits == ("range",):
        return
    threads = {topic: frozenset(_threads(found.members, topic)) for member in found.members for topic in member.threads}
    if len(set(threads.values())) > 1:
        yield (
            "topics have different threads: if the strategy is roundrobin, members of Kafka 0.8.2 to 0.10.1 refuse to "
            "rebalance"
        )
    given = assignor_input(found.members, found.cluster)
    for naming, versions in ((("[", ",]"), "0.8.2 to 0.11"), (("", "-"), "1.0 and 1.1")):
        tied = ties(given, *naming)
        if tied:
            yield (
                f"{_named([str(p) for group in tied for p in group], 'partition')} of equal hashes: if the strategy is "
                f"roundrobin of Kafka {versions}, their order depends on how members list the topics; use range, or "
                "rename a topic"
            )


def _threads(members: Sequence[OldMember], topic: str) -> Iterator[tuple[str, int]]:
    return ((m.consumer, m.threads[topic]) for m in members if topic in m.threads)


def _of_orphans(found: GroupInventory) -> Iterator[str]:
    orphans = found.orphaned_owners()
    if orphans:
        yield (
            f"{_named(list(map(str, orphans)), 'partition')} owned by a consumer that is not registered: nobody else "
            "can take it until its session ends; if that does not happen within a minute, delete the owner nodes"
        )


def _of_offsets(found: GroupInventory) -> Iterator[str]:
    if found.members and found.store == "none":
        yield (
            "no offset anywhere"
            + (" (Kafka was not asked: give --bootstrap-servers)" if found.kafka_offsets is None else "")
            + ": the group keeps them elsewhere, or has never committed"
        )
    elif found.members and found.store == "kafka":
        yield "its offsets are in Kafka alone: whoever reads ZooKeeper for it would start by the reset policy"
    if found.kafka_offsets:
        both = found.offsets.keys() & found.kafka_offsets.keys()
        apart = sorted(p for p in both if found.offsets[p].offset != found.kafka_offsets[p])
        if apart:
            yield (
                f"{_named(list(map(str, apart)), 'partition')} at different offsets in ZooKeeper and in Kafka: old "
                "members with dual commit take the larger one"
            )


def _of_topics(found: GroupInventory) -> Iterator[str]:
    gone = found.gone_topics()
    if gone:
        yield f"{_named(gone, 'topic')} gone, with owners or offsets left: delete them, or they return with the name"
    past = found.gone_partitions()
    if past:
        yield f"{_named(list(map(str, past)), 'partition')} not in the topic, but an offset is left of it"
    subscribed = {topic for member in found.members for topic in member.threads}
    absent = sorted(t for t in subscribed if t not in found.cluster.topics and t not in found.cluster.unreadable)
    if absent:
        yield f"{_named(absent, 'topic')} subscribed, and not there: create it, or correct the subscription"
    for topic in sorted(subscribed & found.cluster.unreadable.keys()):
        yield f"topic {topic}: {found.cluster.unreadable[topic]}; the broker or an operator must mend it"
    if found.members and not found.cluster.brokers:
        yield "no broker is registered: old members keep what they own, and take nothing"


def _stores(found: GroupInventory) -> tuple[Question, ...]:
    asked = found.kafka_offsets is not None
    seen = f"offsets were found in {found.store}" if found.store != "none" else "no offsets were found"
    why = f"{seen}{'' if asked else ' (Kafka was not asked)'}; their offsets.storage"
    sure = asked and found.store in ("zookeeper", "kafka")
    dual = "their dual.commit.enabled (true unless they set it, and only with offsets.storage=kafka)"
    return (
        Question(_OFFSETS, found.store if sure else None, why),
        Question(_DUAL, False if sure else None, dual),
    )


def _strategy(found: GroupInventory) -> Question:
    names = {"range" if name == "range" else "roundrobin" for name in found.fits}
    if len(names) == 1:
        return Question(_STRATEGY, names.pop(), f"what is owned now is what {' and '.join(found.fits)} would give")
    why = "what is owned now fits every strategy" if names else "what is owned now fits no strategy"
    return Question(_STRATEGY, None, f"their partition.assignment.strategy; {why}")


def _internal(found: GroupInventory) -> Question:
    """Ask for `exclude_internal`. There is no suggestion if a wildcard matches an internal topic and none of these
    topics is owned."""
    why = "their exclude.internal.topics (true unless they set it)"
    here = sorted(INTERNAL & found.cluster.topics.keys())
    wildcards = {(m.wildcard, m.black_list) for m in found.members if m.wildcard is not None and m.problem is None}
    meant = {t for regex, black_list in wildcards for t in here if _may_take(regex, black_list, t, found.cluster)}
    if not meant:
        return Question("exclude_internal", True, f"{why}; no wildcard matches an internal topic")
    if any(partition.topic in meant for partition in found.owners):
        return Question("exclude_internal", False, f"{why}; an internal topic that a wildcard matches is owned")
    return Question("exclude_internal", None, f"{why}; a wildcard matches {', '.join(sorted(meant))}")


def _may_take(regex: str, black_list: bool, topic: str, cluster: Cluster) -> bool:
    """True also if nobody knows: the regex takes too long for this name, though not for others."""
    try:
        return matches(regex, topic, black_list=black_list, seconds=cluster.regex_seconds)
    except CorruptError:
        return True


def _versions(found: GroupInventory) -> str:
    told = ", ".join(found.versions()) or "nothing"
    if found.fits and all(name.startswith("roundrobin") for name in found.fits) and len(found.fits) == 1:
        told += "; round robin as " + ("1.0 and 1.1" if found.fits[0] == "roundrobin-1.0" else "0.8.2 to 0.11")
    return f"the version of their library: 0.8, 0.9, 0.10, 0.11, 1.0 or 1.1 (the bytes tell {told})"


def _named(names: Sequence[str], what: str) -> str:
    """`partitions t-0, t-1, t-2 and 4 more are`: the subject of a sentence, with its verb."""
    named = some([shown(name)[1:-1] for name in names], NAMED_MAX)
    return f"{what} {named} is" if len(names) == 1 else f"{what}s {named} are"
