"""Compares an adoption, which says how a group's old members are configured, with what the tree shows. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zkcoord.core.adoption import Adoption
from zkcoord.core.given import shown
from zkcoord.legacy.clients import MIXES, Library
from zkcoord.legacy.inventory import GroupInventory
from zkcoord.legacy.versions import OldVersion, old_version

CLIENTS_NEED, DELETION_NEEDS = (0, 10), (1, 1)
"""The oldest brokers from which confluent-kafka and Spark's connector can read, and the oldest that delete a group's
offsets. An adoption may name only a release line: 0.10 may be any version of that line."""

_RANGE = re.compile(r"([0-9.]+)(?:-([0-9.]+))?")


def objections(found: GroupInventory, adoption: Adoption) -> tuple[str, ...]:
    """Return the reasons against this adoption: each is a sentence that says who must act. It is empty if the tree
    agrees.
    """
    if found.kind == "0.7":
        return ("its members are of Kafka 0.7, which no later one can join: upgrade them first",)
    if found.moved_to is not None:
        return (f"zkcoord moved it to {shown(found.moved_to)}: move it back from there, or read it there",)
    return (*_strangers(found), *_versions(found, adoption), *_strategy(found, adoption), *_stores(found, adoption))


def remarks_on_brokers(adoption: Adoption) -> tuple[str, ...]:
    """Return what does not work with brokers of the adoption's version, each as a sentence; empty if it names no
    version.

    >>> remarks_on_brokers(Adoption(offsets="zookeeper", strategy="range", kafka="1.1", broker="1.0"))
    ()
    """
    if adoption.broker is None:
        return ()
    version = tuple(map(int, adoption.broker.split(".")))
    if version < CLIENTS_NEED:
        return (
            f"its brokers are {adoption.broker}: KafkaConsumer, PySpark and offsets in Kafka are not tried with brokers"
            " before 0.10.2, only zkcoord.Consumer, which asks no broker",
        )
    if adoption.store.tenured and version < DELETION_NEEDS:
        return (f"its brokers are {adoption.broker}: `zkcoord group delete --offsets` needs 1.1",)
    return ()


def _strangers(found: GroupInventory) -> Iterator[str]:
    for member in found.members:
        client = member.client
        if client.library not in MIXES:
            known = "of no known library" if client.library is Library.UNKNOWN else f"by {client.library.value}"
            yield (
                f"consumer {shown(member.consumer)} is {known} ({client.why}), and may compute other shares: whoever "
                "runs it must give it a group of its own first"
            )


def _versions(found: GroupInventory, adoption: Adoption) -> Iterator[str]:
    told = old_version(adoption.kafka)
    for member in found.members:
        versions = member.client.versions if member.client.library is Library.KAFKA else None
        if versions is not None and not _may_be(told, versions):
            yield (
                f"consumer {shown(member.consumer)} registered as Kafka {versions} does ({member.client.why}), not as "
                f"{adoption.kafka}: look up the version of its library"
            )


def _may_be(told: OldVersion, versions: str) -> bool:
    """True when `told` may be one of these versions, which an inventory writes as a version or a range of versions."""
    found = _RANGE.match(versions)
    if found is None:
        return True
    first, last = old_version(found[1]), old_version(found[2] or found[1])
    lowest = told.numbers if told.text.count(".") > 1 else (*told.numbers[:2], 0)
    return lowest <= last.numbers and first.numbers <= told.numbers


def _strategy(found: GroupInventory, adoption: Adoption) -> Iterator[str]:
    version, plan = old_version(adoption.kafka), "range"
    if adoption.strategy != "range" and version.round_robin:
        plan = "roundrobin-1.0" if version.numbers >= (1, 0, 0) else "roundrobin-0.8"
    if found.fits and plan not in found.fits:
        yield (
            f"what is owned now is what {' and '.join(found.fits)} would give, and not {plan}: look up "
            "partition.assignment.strategy and the version of its members"
        )


def _stores(found: GroupInventory, adoption: Adoption) -> Iterator[str]:
    asked = found.kafka_offsets is not None
    if adoption.offsets == "zookeeper" and found.store == "kafka":
        yield "its offsets are in Kafka, and none is in ZooKeeper: look up offsets.storage of its members"
    elif adoption.offsets == "zookeeper" and found.store == "none" and found.members and not asked:
        yield (
            "no offset of it is in ZooKeeper, and Kafka was not asked: give --bootstrap-servers, since consumers would "
            "begin by their reset policy"
        )
    elif adoption.offsets == "kafka" and asked and found.store == "zookeeper":
        yield "its offsets are in ZooKeeper, and none is in Kafka: look up offsets.storage of its members"
