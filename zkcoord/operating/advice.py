"""What people can do about a group in its state. These are the lines of `zkcoord group describe` that begin with
`!`."""

from __future__ import annotations

from collections.abc import Iterator

from zkcoord.core.model import Phase
from zkcoord.core.moved import Moved, MoveState
from zkcoord.core.record import HOLD
from zkcoord.group_report import GroupReport, TreeReport
from zkcoord.operating.waiting import NOBODY, why_not_stable


def advice(above: TreeReport, report: GroupReport) -> Iterator[str]:
    """Yield one sentence for each thing that somebody can do. A stable group without a hold gets no sentence."""
    view, name = report.view, report.view.group
    if report.deleted:
        yield f"whoever joins goes on at its offsets: `zkcoord group delete {name} --offsets` removes them"
    elif view.unreadable is not None:
        yield f"{why_not_stable(above, report)}; `zkcoord group mend {name}` shows what could stand there"
    elif view.record.moved is not None:
        yield _of_a_move(name, view.record.moved)
    elif view.state.failed is not None:
        yield f"the member that is named must obey, or leave: then `zkcoord group rebalance {name}` tries again"
    elif report.phase is Phase.OBSERVED:
        if not view.observed:
            yield "the member that is named must leave before consumers of zkcoord can share the group"
    elif report.phase is Phase.DEAD:
        yield f"it is being deleted: wait, or run `zkcoord group delete {name}` again"
    elif report.phase is not Phase.STABLE:
        yield why_not_stable(above, report)
    elif HOLD in view.record.requests:
        yield f"`zkcoord group resume {name}` ends the hold"
    if view.state.quarantined:
        yield f"`zkcoord group rebalance {name}` lets every member try the quarantined partitions again"


def of_the_tree(above: TreeReport) -> Iterator[str]:
    """Yield one sentence for each thing that somebody can do about all groups."""
    if above.coordinator is None:
        yield NOBODY


def _of_a_move(name: str, moved: Moved) -> str:
    command = f"`zkcoord migrate move --group {name}`"
    match moved.state:
        case MoveState.GONE:
            return f"nothing is read here any more: start its consumers at {moved.address}"
        case MoveState.LEAVING:
            return f"run {command} again if it broke off; with --give-up the group goes on here"
        case MoveState.ARRIVING:
            away = "with --give-up the group goes on there, and the copy here is removed"
            return (
                f"run {command} again at {moved.address} if it broke off: nobody reads here before it is done; {away}"
            )
