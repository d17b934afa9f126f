"""Waits until a group is stable, and says what it waits for."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from zkcoord.core.model import Phase
from zkcoord.core.record import BEGUN, DELETE, DONE, HOLD, PAUSE, POKE, REBALANCE, RESET, Request
from zkcoord.core.words import count
from zkcoord.errors import ConsumerRebalanceFailed, UnavailableError, UsageError
from zkcoord.group_report import Awaited, GroupReport, TreeReport, may_name_a_group, read_group, read_tree
from zkcoord.migrate import BlockingTree, current
from zkcoord.operating.requesting import TURN_SECONDS
from zkcoord.operating.saying import say
from zkcoord.operating.words import at
from zkcoord.tree.paths import Layout

WAIT_TIMEOUT_MS = 60_000
REQUESTED = {
    PAUSE: "paused",
    HOLD: "held",
    DELETE: "to be deleted",
    REBALANCE: "to be rebalanced",
    RESET: "stopped while its offsets are reset",
    POKE: "to be poked",
}

NOBODY = "no coordinator is elected: start one (`zkcoord coordinator`)"

LEFT_TO_KAFKA = {
    BEGUN: "paused to be handed over to consumers of Kafka's own protocol",
    DONE: "handed over to consumers of Kafka's own protocol",
}


def requested_words(name: str, request: Request) -> str:
    """Say which state of the group this request asks for."""
    return LEFT_TO_KAFKA.get(request.handed_over, REQUESTED.get(name, name))


class GroupWait:
    """Waits until a deadline, which is the same for all groups. Every few seconds it prints the reason on standard
    error."""

    def __init__(self, tree: BlockingTree, address: str, timeout_ms: int, say_every_ms: int) -> None:
        self._tree, self._address, self._say_every_ms = tree, address, say_every_ms
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._said = time.monotonic()

    def for_the_tree(self) -> None:
        """Wait until the first coordinator has made the tree, but not after the deadline."""
        while current(self._tree) is None and not self._late():
            self._turn(lambda: "the first coordinator has not made zkcoord's nodes yet")

    def until_stable(self, layout: Layout, name: str, *, empty_too: bool) -> GroupReport:
        """Wait until the group is settled, and return it. Two equal readings in a row show that all of it was so at one
        moment.

        `empty_too`: a group without members is settled, too.
        """
        before: GroupReport | None = None
        while True:
            report = self._report_or_none(layout, name)
            if report is not None:
                if report.view.state.failed is not None:
                    raise ConsumerRebalanceFailed(f"group {name}: {report.view.state.failed.error}")
                at_rest = report.settled or (empty_too and report.phase is Phase.EMPTY)
                if at_rest and before is not None and before.view == report.view:
                    return report
                if self._late():
                    raise UnavailableError(self._not_stable(report))
            before = report
            self._turn(partial(self._absent, name) if report is None else partial(self._not_stable, report))

    def _late(self) -> bool:
        return time.monotonic() >= self._deadline

    def _turn(self, what: Callable[[], str]) -> None:
        if time.monotonic() - self._said >= self._say_every_ms / 1000:
            self._said = time.monotonic()
            say("waiting", what())
        time.sleep(TURN_SECONDS)

    def _report_or_none(self, layout: Layout, name: str) -> GroupReport | None:
        """Return the group. Before the deadline, return None if it does not exist (yet)."""
        try:
            return read_group(self._tree, layout, name)
        except UsageError:
            if not may_name_a_group(name) or self._late():
                raise
            return None

    def _not_stable(self, report: GroupReport) -> str:
        """Say why the group is not stable, and what to do."""
        above = read_tree(self._tree, self._address)
        return why_not_stable(above, report) + _nobody(above)

    def _absent(self, name: str) -> str:
        return f"there is no group {name} yet{_nobody(read_tree(self._tree, self._address))}"


def _nobody(above: TreeReport) -> str:
    """Say that no coordinator is elected; "" if one is."""
    return "" if above.coordinator is not None else f"; {NOBODY}"


def why_not_stable(above: TreeReport, report: GroupReport) -> str:
    """Say why the group is not stable, and what to do."""
    name, commands = report.view.group, count(report.commands(), "command")
    if (moved := report.view.record.moved) is not None:
        return f"group {name} {moved.where()}: nobody reads it here (`zkcoord group describe {name}` says what to do)"
    if report.phase is Phase.EMPTY:
        away = f", static members are away ({', '.join(report.awaited)})" if report.awaited else ""
        return f"group {name} has no members (Empty){away}: start its consumers, or wait longer"
    if report.view.unreadable is not None:
        return f"group {name} is left alone until an operator mends what cannot be read: {report.view.unreadable}"
    requests = report.view.record.requests
    standing = " and ".join(requested_words(name, requests[name]) for name in (RESET, PAUSE, HOLD) if name in requests)
    if standing:
        verb = "take-back" if report.view.record.handed_over else "resume"
        return (
            f"group {name} is {standing}, and not stable ({report.phase.value}, {commands} outstanding): `zkcoord group"
            f" {verb} {name}` ends that"
        )
    if report.phase is Phase.AWAITING_MEMBER:
        away = "; ".join(f"{instance}: {waits_for(above, awaited)}" for instance, awaited in report.awaited.items())
        return (
            f"group {name} is not stable ({report.phase.value}): a static member is away ({away}): start it again, wait"
            f" longer, or let `zkcoord group rebalance {name}` give its share to others"
        )
    if report.problems:
        return f"group {name} is not stable yet ({report.phase.value}, {commands} outstanding); {first_problem(report)}"
    return (
        f"group {name} is not stable yet ({report.phase.value}, {commands} outstanding): wait longer, or see"
        f" `zkcoord group describe {name} --members`"
    )


def first_problem(report: GroupReport) -> str:
    """Describe the group's first node with a problem: its path, the problem, who must act; "" if there is none."""
    if not report.problems:
        return ""
    path = min(report.problems)
    others = len(report.problems) - 1
    more = f" ({count(others, 'further problem')}: `zkcoord group describe {report.view.group}`)" if others else ""
    return f"{path}: {report.problems[path]}{more}"


def waits_for(above: TreeReport, awaited: Awaited) -> str:
    """Say which partitions are kept for a static member that is away, and until when."""
    until_ms = awaited.until_ms(above)
    when = (
        f"until {at(until_ms)}, by the clock of ZooKeeper's server"
        if until_ms is not None
        else f"for {awaited.hold_ms} ms from the next election on"
        if above.coordinator is None
        else f"for {awaited.hold_ms} ms, nobody noted since when"
    )
    return f"{count(len(awaited.partitions), 'partition')} without a reader, kept for it {when}"
