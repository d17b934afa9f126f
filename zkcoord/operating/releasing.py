"""Removes zkcoord's nodes of a group, or of a whole tree, from ZooKeeper. Each step may break off, and is then run
again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from zkcoord.core.adoption import Adoption
from zkcoord.core.model import consumer_of
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.offset_store import ZOOKEEPER
from zkcoord.core.record import GroupRecord
from zkcoord.core.words import some
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.legacy.clients import Library, client_of
from zkcoord.legacy.modes import named_as_ours
from zkcoord.migrate import BlockingTree
from zkcoord.operating.requesting import by_version, edit_record, read_record
from zkcoord.shell.ports import Outcome
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import encode_record, record_in
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import WRITE_BYTES, CheckNode, DeleteNode, SetNode, Transaction, Write, parts

ROUNDS_MAX = 20
"""How many times in a row a removal may be refused, or have an unknown outcome, before a person must look."""

Waits = Callable[[Sequence[str]], None]
"""Is called with zkcoord's consumers that are still there. Waits a moment, or raises."""


def release(tree: BlockingTree, layout: Layout, group: str, waits: Waits, items_max: int | None = None) -> int:
    """Remove zkcoord's nodes of a group that old consumers use. Return the number of removed nodes.

    First the adoption is taken out of the record: from then on no consumer of zkcoord can join, and no coordinator
    writes (docs/protocol.md, section 10). The record is removed last. The offsets stay as they are.
    """
    while True:
        there = ours(tree, layout, group)
        if there:
            waits(there)
            continue
        adoption = _take_out(tree, layout, group)
        # also if another release took the adoption out: nobody knows what that release has seen
        if not ours(tree, layout, group):
            roots = (layout.channels_of(group), layout.record(group))
            return remove(tree, roots, layout.record(group), _still_needed, items_max)
        if adoption is not None:
            _put_back(tree, layout, group, adoption)


def ours(tree: BlockingTree, layout: Layout, group: str) -> list[str]:
    """Return zkcoord's consumers that are registered in the group, or that still own a partition."""
    listed, topics = tree.read([Read(layout.ids(group), Kind.CHILDREN), Read(layout.owners(group), Kind.CHILDREN)])
    registrations = _data(tree, [listed])
    found = {
        node.path.rpartition("/")[2]
        for node in registrations
        if node.stat is not None
        and client_of(group, node.path.rpartition("/")[2], node.data, node.stat.version).library is Library.ZKCOORD
    }
    if not layout.adopts:  # owners of the layout draft outlive their consumers
        return sorted(found)
    lists = tree.read([Read(f"{topics.path}/{name}", Kind.CHILDREN) for name in topics.children])
    owners = {consumer_of(node.data.decode("utf-8", "replace")) for node in _data(tree, lists)}
    return sorted(found | {name for name in owners if named_as_ours(group, name)})


def _data(tree: BlockingTree, lists: Iterable[Node]) -> tuple[Node, ...]:
    reads = [Read(f"{node.path}/{name}") for node in lists for name in node.children]
    return tree.read(reads) if reads else ()


def _take_out(tree: BlockingTree, layout: Layout, group: str) -> Adoption | None:
    """Take the adoption out of the group's record, and return it; None if there was none."""
    record = read_record(tree, layout, group)
    if record is None or record.adoption is None:
        return None  # `remove` refuses a group that is being moved
    adoption = record.adoption

    def edit(now: GroupRecord) -> GroupRecord:
        if now.adoption is not None and (why := offsets_elsewhere(group, now)):
            raise UsageError(f"group {group} is not released: {why}")
        return replace(now, adoption=None)

    edit_record(tree, layout, group, edit, moved=True)
    return adoption


def offsets_elsewhere(group: str, record: GroupRecord) -> str:
    """Say why consumers that do not know zkcoord's record would not find the group's offsets; "": they would find
    them."""
    if record.moved is not None:
        return _being_moved(record.moved)
    wanted = ZOOKEEPER if record.adoption is None else record.adoption.store_name
    if record.store_name == wanted or record.left_to_kafka:  # Kafka's consumers have them
        return ""
    if left_to := record.left_to(group):
        return f"it {left_to}"
    return (
        f"its offsets were moved to the store {record.store_name!r}: bring them back first, with `zkcoord offsets "
        f"migrate {group} --to {wanted}`"
    )


def _being_moved(moved: Moved) -> str:
    """Say why a group that is moved to or from another tree stays; "": the offsets in this tree no longer count."""
    return "" if moved.state is MoveState.GONE else f"it {moved.where()}: end that move first, or give it up"


def _put_back(tree: BlockingTree, layout: Layout, group: str, adoption: Adoption) -> None:
    """Adopt the group as before, except if another release has removed the record since."""
    path = layout.record(group)

    def attempt() -> tuple[None, Write | None]:
        (node,) = tree.read([Read(path)])
        record = record_in(node)
        if record is None or node.stat is None or record.adoption is not None:
            return None, None
        return None, SetNode(path, encode_record(replace(record, adoption=adoption)), node.stat.version)

    by_version(tree, path, f"{group}: record", attempt)


def below(tree: BlockingTree, roots: Iterable[str]) -> list[tuple[str, int]]:
    """Return these nodes and all nodes below them, with their versions, the deepest first."""
    found: list[tuple[str, int]] = []
    level = list(roots)
    while level:
        nodes = tree.read([Read(path, Kind.CHILDREN) for path in level])
        found += [(node.path, node.stat.version) for node in nodes if node.stat is not None]
        level = [f"{node.path}/{name}" for node in nodes for name in node.children]
    return sorted(found, key=lambda each: (-each[0].count("/"), each[0]))


def remove(
    tree: BlockingTree,
    roots: Sequence[str],
    guard: str,
    refusal: Callable[[Node], str],
    items_max: int | None = None,
) -> int:
    """Remove `roots` and all nodes below them, and return the number of removed nodes. Each multi removes at most
    `items_max` nodes (None: as many as others do), and checks the version of `guard`.

    If somebody writes at the same time, it starts again with the remaining nodes. `refusal` gets the guard's node, if
    that exists, and returns why nothing more may be removed, or "". A reason is raised as UsageError.
    """
    gone, refused = 0, 0
    while found := below(tree, roots):
        (node,) = tree.read([Read(guard)])
        checks = [CheckNode(guard, node.stat.version)] if node.stat is not None else []
        if node.exists and (why := refusal(node)):
            raise UsageError(f"{guard}: {why}")
        for part in parts(found, lambda each: len(each[0]) + WRITE_BYTES, items_max):
            deletes = [DeleteNode(path, version) for path, version in part]
            done = tree.commit(Transaction(writes=(*checks, *deletes), why=f"remove {roots[-1]}"))
            if done.outcome is Outcome.COMMITTED:
                gone, refused = gone + len(part), 0
                continue
            refused += 1
            if done.reason == "NoAuth":
                raise UsageError(f"{roots[-1]}: no right to remove it; log in as who may (--zookeeper-config)")
            if refused >= ROUNDS_MAX:
                raise UnavailableError(f"{roots[-1]}: others changed it {ROUNDS_MAX} times meanwhile: try again")
            tree.sync()
            break
    return gone


def _still_needed(node: Node) -> str:
    record = record_in(node)
    if record is None:
        return ""
    if record.adoption is not None:
        return "somebody adopted the group again meanwhile: nothing more of it is removed"
    return "" if record.moved is None else _being_moved(record.moved)


def named(there: Sequence[str]) -> str:
    """Say which of zkcoord's consumers are in a group."""
    verb = "is" if len(there) == 1 else "are"
    return f"{some(there)} of zkcoord {verb} registered there, or still {verb} an owner"
