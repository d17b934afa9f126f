"""How a member changes its offset store: it sets every held partition's node, so that each begins a new tenure.

Then earlier or late commits in Kafka belong to an earlier tenure. All partitions of a member use one store at a time.
The last multi acknowledges the command, and its status names the store.
"""

from __future__ import annotations

from zkcoord.core.command import Command, Option
from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.compare import at_rest
from zkcoord.core.member.decisions import CommitOffsets, Decision, Report, SwitchStore
from zkcoord.core.member.memory import Memory, Switch
from zkcoord.core.member.mirror import NO_MIRROR
from zkcoord.core.member.status import Sizes, Store
from zkcoord.core.member.view import MemberView
from zkcoord.core.offset_store import STORES, ZOOKEEPER

NOT_OFFERED = "this consumer does not offer offset-store"

Step = tuple[list[Decision], Memory]


def store_of(command: Command) -> Store:
    """The store that a start or an `offset-store` names."""
    return Store(command.offsets or ZOOKEEPER, command.step or 0)


def why_refused(view: MemberView, memory: Memory, command: Command) -> str:
    """Why a command is refused because of the store that it names; "" if it is not."""
    name = store_of(command).name
    if command.option is Option.OFFSET_STORE:
        if view.log is None:
            return NOT_OFFERED
        return "" if name in STORES else f"it names the offset store {name!r}, this consumer knows {', '.join(STORES)}"
    if command.option is not Option.START_FETCHER or name == memory.store.name:
        return ""
    if name != ZOOKEEPER and (view.log is None or name not in STORES):
        offered = STORES if view.log is not None else (ZOOKEEPER,)
        return f"it names the offset store {name!r}, this consumer offers {', '.join(offered)}"
    if not memory.held:
        return ""
    return (
        f"it names the offset store {name}, and what this consumer holds is in the store {memory.store.name}: whoever"
        " runs the coordinator must have it send offset-store first (zkcoord's own do)"
    )


def begin(memory: Memory, sequence: str, command: Command) -> Memory:
    """Take up an `offset-store`. If the change is already done, no node is set."""
    store = store_of(command)
    before = {} if store == memory.store else {p: held.mzxid for p, held in sorted(memory.held.items())}
    return fast_replace(memory, switch=Switch(sequence, store, before))


def waits_for_kafka(memory: Memory) -> bool:
    """True while a change of the store waits for Kafka's answer: it may be about a commit of the program. Where the
    node holds the committed offset, the commit to Kafka that is under way does not count once the node is set."""
    return memory.switch is not None and memory.mirror.exchange is not None and not memory.store.node_counts


def advance(view: MemberView, memory: Memory, sizes: Sizes) -> Step:
    """Set the nodes that are not set yet; then acknowledge."""
    switch, held = memory.switch, memory.held
    if switch is None or waits_for_kafka(memory) or not view.may_write or not at_rest(view, memory):
        return [], memory
    if switch.sequence not in view.commands:
        told = Report(event="offset_store_changed", fields={"store": switch.store.name, "step": switch.store.step})
        mirror = memory.mirror if switch.store.tenured else NO_MIRROR
        return [told], fast_replace(memory, switch=None, store=switch.store, mirror=mirror)
    left = [p for p, mzxid in switch.before.items() if p in held and held[p].mzxid == mzxid]
    part = left[: sizes.room(left)]
    offsets = {p: held[p].offset for p in part}
    memory = fast_replace(memory, writing=offsets)
    if len(part) < len(left):
        return [CommitOffsets(held={p: held[p] for p in part}, offsets=offsets)], memory
    received = view.commands[switch.sequence]
    commands = {switch.sequence: received.version if received is not None else 0}
    status, memory = memory.saying(view)
    status = fast_replace(status, store=switch.store.name, step=switch.store.step)
    return [SwitchStore(held={p: held[p] for p in part}, offsets=offsets, commands=commands, status=status)], memory
