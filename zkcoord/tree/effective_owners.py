"""Who owns what where owners are claims: the claims themselves, and what nobody else may have though no node stands.

A start reserves its partitions for its receiver until it is obeyed, while the receiver's registration stands. What an
evicted consumer owned counts as its own, by its mark, until its grace is over (`core.reconcile.available`). These
owners have the version -1: there is no node.
"""

from __future__ import annotations

from collections.abc import Mapping

from zkcoord.core.model import TopicPartition
from zkcoord.core.view import START, Channel, Member, Owner

NO_NODE = -1


def effective_owners(
    claims: Mapping[TopicPartition, Owner], members: Mapping[str, Member], channels: Mapping[str, Channel]
) -> dict[TopicPartition, Owner]:
    """The owners of a group's view: a claim counts most, an evicted consumer's mark least."""
    owners: dict[TopicPartition, Owner] = {}
    for consumer_id in sorted(channels):
        marked = channels[consumer_id].evicted_owned
        owners.update(dict.fromkeys(sorted(marked), Owner(f"{consumer_id}-0", NO_NODE)) if marked else {})
    for consumer_id in sorted(channels.keys() & members.keys()):
        for command in channels[consumer_id].commands:
            for partition, thread in (command.threads or {}).items() if command.option == START else ():
                owners[partition] = Owner(thread, NO_NODE)
    owners.update(claims)
    return owners
