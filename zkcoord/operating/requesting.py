"""Writes an operator's request into a group's record by compare-and-set, then waits for the coordinator's answer.

The request stays if the tool dies, and the serving coordinator carries it out.
"""

from __future__ import annotations

import os
import pwd
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

from zkcoord.core.record import DEFAULT_RECORD, GroupRecord, Request
from zkcoord.errors import UnavailableError, UsageError
from zkcoord.group_report import may_name_a_group, no_such_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.operating.saying import say
from zkcoord.shell.ports import TOO_LARGE, Outcome, refuse_without_right
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import encode_record, record_in
from zkcoord.tree.request import requested
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import CreateNode, SetNode, Transaction, Write

TURN_SECONDS = 0.1
PROGRESS_SECONDS = 5.0
ATTEMPTS_MAX = 20
"""How often one edit is tried. Others edit the same node only now and then, so 20 attempts are enough."""
PENDING = "the request stands, and a coordinator carries it out as soon as it can"

Edit = Callable[[GroupRecord], GroupRecord]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A coordinator's answer. `state` is "deleted" if the record was deleted with the group."""

    run: str
    state: str
    reason: str | None = None


def who() -> str:
    """Return the user and the host of this program."""
    try:
        user = os.environ.get("USER") or pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name, as in many containers
        user = f"uid-{os.getuid()}"
    return f"{user}@{socket.gethostname()}"


def who_and_when() -> dict[str, Any]:
    """Return who asks and when, for people, and the id of the run, for the answer."""
    return {
        "who": who(),
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": secrets.token_hex(8),
    }


def read_record(tree: BlockingTree, layout: Layout, group: str) -> GroupRecord | None:
    """Return the group's record; None if there is none. Raise CorruptError with the node's path if nobody can parse
    it."""
    (node,) = tree.read([Read(layout.record(group))])
    return record_in(node)


def refuse_moved(group: str, record: GroupRecord) -> None:
    """Raise UsageError for a group that is or was moved to another tree, or that arrives from one."""
    if record.moved is not None:
        raise UsageError(f"group {group} {record.moved.where()}: nothing is changed here")


def edit_record(
    tree: BlockingTree, layout: Layout, group: str, edit: Edit, *, new: bool = False, moved: bool = False
) -> GroupRecord:
    """Change the group's record with a check of its version, and return it.

    Raise UsageError if there is no such group, except with `new`. Raise UsageError also for a group that is or was
    moved to another tree, except with `moved`. `edit` may be called several times, as in `by_version`: it must not
    change what is already done.
    """
    if not may_name_a_group(group):
        raise UsageError(no_such_group(group))
    path = layout.record(group)

    def attempt() -> tuple[GroupRecord, Write | None]:
        folder, node = tree.read([Read(layout.group(group)), Read(path)])
        if not (folder.exists or node.exists or new):
            raise UsageError(no_such_group(group))
        before = record_in(node) or DEFAULT_RECORD
        if not moved:
            refuse_moved(group, before)
        after = edit(before)
        if after == before:
            return before, None
        data = encode_record(after)
        return after, CreateNode(path, data) if node.stat is None else SetNode(path, data, node.stat.version)

    return by_version(tree, path, f"{group}: record", attempt)


def by_version(tree: BlockingTree, path: str, why: str, attempt: Callable[[], tuple[T, Write | None]]) -> T:
    """Call `attempt`, which reads a node and returns a result and a write, and carry the write out. Return the result.
    The write is None if there is nothing to do.

    `attempt` is called again if somebody else has written first, or if the outcome of the write is unknown. Raise
    UsageError if no attempt can succeed.
    """
    for _ in range(ATTEMPTS_MAX):
        result, write = attempt()
        if write is None:
            return result
        done = tree.commit(Transaction(writes=(write,), why=why))
        if done.outcome is Outcome.COMMITTED:
            return result
        refuse_without_right(done, path)
        if done.reason == TOO_LARGE:
            raise UsageError(f"{path}: it would be larger than ZooKeeper takes: make it smaller first")
        tree.sync()
    raise UnavailableError(f"{path}: others changed it {ATTEMPTS_MAX} times meanwhile: try again")


def ask(
    tree: BlockingTree,
    layout: Layout,
    group: str,
    name: str,
    *,
    take_over: bool = False,
    check: Callable[[GroupRecord], None] = lambda record: None,
    **fields: Any,
) -> str:
    """Write a request. Return the run to wait for: that of a standing request if there is one.

    `take_over`: the request replaces a standing one. The tool of the standing one can then no longer write. `check`
    raises an error if the request must not be written into this record.
    """
    mine = Request(**{**who_and_when(), **fields})

    def edit(record: GroupRecord) -> GroupRecord:
        if layout.adopts and record.adoption is None:
            raise UsageError(
                f"group {group} is not adopted: nothing is done with it before `zkcoord group adopt {group}`"
            )
        standing = record.requests.get(name)
        if standing == mine or (standing is not None and not take_over):
            return record
        check(record)
        return requested(record, name, mine)

    standing = edit_record(tree, layout, group, edit).requests.get(name, mine)
    if standing.run != mine.run:
        say("notice", f"group {group}: {standing.who or 'somebody'} has already asked for {name}")
    return standing.run


def take_back(tree: BlockingTree, layout: Layout, group: str, names: tuple[str, ...]) -> bool:
    """Take requests back. Return False if none of them stood and none had an answer. Raise UsageError for a group that
    is handed over: `group take-back` ends its pause."""
    stood = False

    def edit(record: GroupRecord) -> GroupRecord:
        nonlocal stood
        if left_to := record.left_to(group):
            raise UsageError(f"group {group} {left_to}")
        for name in names:
            stood = stood or name in record.requests or name in record.responses
            record = requested(record, name, None)
        return record

    edit_record(tree, layout, group, edit)
    return stood


def turns(timeout_ms: int) -> Callable[[Callable[[], str], Callable[[], str]], None]:
    """Return a function that waits one turn, and says every `PROGRESS_SECONDS` what it waits for. The function takes
    two others: the first says what is waited for, the second gives the message of the UnavailableError after
    `timeout_ms`."""
    began = said = time.monotonic()

    def turn(doing: Callable[[], str], late: Callable[[], str]) -> None:
        nonlocal said
        now = time.monotonic()
        if now - began >= timeout_ms / 1000:
            raise UnavailableError(late())
        if now - said >= PROGRESS_SECONDS:
            say("waiting", doing())
            said = now
        time.sleep(TURN_SECONDS)

    return turn


def wait(
    what: str, timeout_ms: int, ask: Callable[[], Answer | None], doing: Callable[[], str], pending: str = PENDING
) -> Answer:
    """Wait for an answer, and say every few seconds what is waited for. Raise UnavailableError after `timeout_ms`.

    If the command is interrupted, it prints `pending`, which says what happens to the request.
    """

    def late() -> str:
        return f"{what} is not done after {timeout_ms} ms ({doing()}): {pending}"

    turn = turns(timeout_ms)
    try:
        while (answer := ask()) is None:
            turn(lambda: f"{what}: {doing()}", late)
    except KeyboardInterrupt:
        say("notice", f"{what} is not done yet: {pending}")
        raise
    return answer


def answer_to(tree: BlockingTree, layout: Layout, group: str, name: str, run: str) -> Answer | None:
    """Return the answer to this run; None: there is no answer yet. If the request is gone without its answer, it was
    carried out, and another run's answer has replaced its own."""
    record = read_record(tree, layout, group)
    if record is None:
        return Answer(run=run, state="deleted")
    response, standing = record.responses.get(name), record.requests.get(name)
    if response is not None and response.run == run and response.state != "deleting":
        return Answer(run=run, state=response.state, reason=response.reason or None)
    if standing is None or standing.run != run:
        return Answer(run=run, state="done")
    return None


def who_serves(tree: BlockingTree, address: str) -> str:
    """Say which coordinator serves."""
    above = read_tree(tree, address)
    return "no coordinator is elected" if above.coordinator is None else f"coordinator {above.coordinator} serves"
