"""Puts a group of old consumers under zkcoord."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from zkcoord.core.adoption import Adoption
from zkcoord.core.record import GroupRecord
from zkcoord.errors import UnavailableError, UsageError, ZkcoordError
from zkcoord.group_report import read_tree
from zkcoord.legacy.adopting import objections, remarks_on_brokers
from zkcoord.legacy.findings import problems_of
from zkcoord.legacy.inventory import GroupInventory
from zkcoord.migrate import BlockingTree
from zkcoord.operating.requesting import edit_record
from zkcoord.subscription import check_name
from zkcoord.tree.paths import LEGACY, Layout
from zkcoord.tree.snapshot import Read

ADOPTED, CHANGED, UNCHANGED, REFUSED = "adopted", "changed", "unchanged", "refused"


class Result(NamedTuple):
    """The result of one group's adoption. `notes`: the number of the inventory's notes about the group."""

    group: str
    result: str
    notes: int
    why: str = ""


def legacy_layout(tree: BlockingTree, address: str) -> Layout:
    """Return the tree's layout. Raise UsageError if groups are not adopted in this layout."""
    layout = read_tree(tree, address).layout
    if not layout.adopts:
        raise UsageError(
            f"the tree has the layout {layout.name}, whose groups are zkcoord's own: only in a tree of the layout "
            f"{LEGACY.name} are groups adopted and released"
        )
    return layout


def adopt_group(
    tree: BlockingTree, layout: Layout, group: str, adoption: Adoption, found: GroupInventory | None, *, force: bool
) -> Result:
    """Adopt one group. The result holds an error that concerns this group alone."""
    notes = len(problems_of(found)) if found is not None else 0
    against = objections(found, adoption) if found is not None and not force else ()
    if against:
        return Result(group, REFUSED, notes, "; ".join(against))
    result = UNCHANGED

    def edit(record: GroupRecord) -> GroupRecord:
        nonlocal result
        before = record.adoption
        if before is None:
            result = ADOPTED
            # a step: people moved its offsets there before it was adopted here
            store_name = record.store_name if record.store_step else adoption.store_name
            return replace(record, adoption=adoption, store_name=store_name)
        if (before.offsets, before.dual_commit) != (adoption.offsets, adoption.dual_commit):
            raise UsageError(
                f"it is adopted with offsets in {before.store_name!r}, not {adoption.store_name!r}: release it first"
            )
        after = replace(adoption, unknown=before.unknown)
        # if they are equal, it was so before, or an earlier attempt, whose answer was lost, has written it
        if after != before:
            result = CHANGED
        return replace(record, adoption=after)

    try:
        check_name("group", group)
        if found is None and tree.read([Read(layout.group(group))])[0].exists:
            raise UsageError("it cannot be read: give this user the right to it (ACL)")
        record = edit_record(tree, layout, group, edit, new=True)
    except UnavailableError:
        raise
    except ZkcoordError as error:
        return Result(group, REFUSED, notes, str(error))
    remarks = [] if found is not None else ["there is no such group yet"]
    if result == ADOPTED and record.store_name != adoption.store_name:
        remarks.append(
            f"its offsets stay in the store {record.store_name!r}, to which they were moved: `zkcoord offsets migrate "
            f"{group} --to {adoption.store_name}` brings them to that of its old members"
        )
    elif adoption.store.tenured:
        remarks.append(
            f"its consumers of zkcoord use the store {adoption.store_name!r}, too: give them brokers' addresses"
        )
    remarks += remarks_on_brokers(adoption)
    return Result(group, result, notes, "; ".join(remarks))
