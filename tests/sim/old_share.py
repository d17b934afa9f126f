"""How an old member reads its group node by node, and computes its own share."""

from __future__ import annotations

import json

from tests.sim.blocking import Blocking
from tests.sim.old_settings import OldSettings
from tests.sim.old_zkclient import ZkClient
from zkcoord.core.model import consumer_of
from zkcoord.errors import CorruptError
from zkcoord.legacy.planning import OldGroup, plan_of
from zkcoord.tree.paths import TOPICS


def read_share(client: ZkClient, settings: OldSettings, consumer_id: str) -> Blocking:
    """Partition -> thread of this consumer; an error where the real one raises.

    As in the real one, the attempt fails if a member disappears after the list was read and before its own node is
    read.
    """
    names = yield from client.children(f"/consumers/{settings.group}/ids")
    registrations = {}
    for name in names:
        registrations[name] = yield from client.read(f"/consumers/{settings.group}/ids/{name}")
    topics: dict[str, tuple[int, ...]] = {}
    for topic in (yield from client.children(TOPICS)):
        text = yield from client.read_or_none(f"{TOPICS}/{topic}")
        if text is not None:
            topics[topic] = tuple(sorted(int(number) for number in json.loads(text).get("partitions", {})))
    group = OldGroup(
        version=settings.old,
        assignor=settings.strategy,
        registrations=registrations,
        topics=topics,
        exclude_internal=settings.exclude_internal,
    )
    plan = plan_of(group)
    if plan.owners is None:
        raise CorruptError(plan.error or "no plan")
    return {p: thread for p, thread in sorted(plan.owners.items()) if consumer_of(thread) == consumer_id}
