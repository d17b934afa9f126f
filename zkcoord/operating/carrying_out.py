"""Writes an operator's request for a group, and waits until a coordinator has carried it out."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from zkcoord.core.record import RESET
from zkcoord.core.requests import REFUSED, STANDING, has_stopped
from zkcoord.errors import UsageError
from zkcoord.group_report import read_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.operating.requesting import Answer, answer_to, ask, read_record, take_back, wait, who_serves
from zkcoord.operating.waiting import first_problem
from zkcoord.tree.paths import Layout


def carry_out(tree: BlockingTree, address: str, whose: str, name: str, timeout_ms: int, **fields: Any) -> Answer:
    """Write the request, and return the answer. Raise UsageError with the reason if the coordinator refuses the
    request."""
    layout = read_tree(tree, address).layout
    run = ask(tree, layout, whose, name, **fields)
    answer = wait(
        f"{name} of group {whose}",
        timeout_ms,
        lambda: answer_to(tree, layout, whose, name, run),
        lambda: _waits_for(tree, layout, address, whose),
    )
    if answer.state == REFUSED:
        raise UsageError(f"{name} of group {whose} is refused: {answer.reason}")
    return answer


def _waits_for(tree: BlockingTree, layout: Layout, address: str, group: str) -> str:
    """Return who carries the request out, and the group's node that may prevent it."""
    problem = ""
    with suppress(UsageError):  # for a group that is gone
        problem = first_problem(read_group(tree, layout, group))
    return who_serves(tree, address) + (problem and f"; {problem}")


def end_standing(tree: BlockingTree, address: str, name: str, timeout_ms: int) -> bool:
    """Take back the requests that stop or hold the group, and wait until they have ended. Return False if there were
    none."""
    layout = read_tree(tree, address).layout
    stood = take_back(tree, layout, name, (*STANDING, RESET))

    def over() -> Answer | None:
        record = read_record(tree, layout, name)
        left = record is not None and (has_stopped(record) or any(map(record.responses.get, STANDING)))
        return None if left else Answer(run="", state="resumed")

    wait(f"resume of group {name}", timeout_ms, over, lambda: who_serves(tree, address))
    return stood
