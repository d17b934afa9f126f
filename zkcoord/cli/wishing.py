"""How a tool wishes something of a group: into its record by compare-and-set, then waits for the coordinator's answer.

Whatever happens to the tool, the wish stands, and is carried out by whoever coordinates.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zkcoord.cli.output import say
from zkcoord.cli.reading import read_tree
from zkcoord.errors import CorruptError, UnavailableError, UsageError
from zkcoord.migrate import BlockingTree
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.tree.paths import Layout
from zkcoord.tree.record import DEFAULT_RECORD, GroupRecord, decode_record, encode_record
from zkcoord.tree.snapshot import Read
from zkcoord.tree.wish import wished
from zkcoord.tree.writes import CreateNode, SetNode, Transaction, Write

TURN_SECONDS = 0.1
PROGRESS_SECONDS = 5.0
ATTEMPTS_MAX = 20
"""Of one edit: somebody else edits the same node only now and then."""

Edit = Callable[[GroupRecord], GroupRecord]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a coordinator answered; `state` is "deleted" when the record went with the group."""

    run: str
    state: str
    reason: str | None = None


def who_and_when() -> dict[str, str]:
    """Who asks, and when, for people; and the run's name, for the answer."""
    user = os.environ.get("USER") or f"uid-{os.getuid()}"
    return {
        "who": f"{user}@{socket.gethostname()}",
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "run": secrets.token_hex(8),
    }


def read_record(tree: BlockingTree, layout: Layout, group: str) -> GroupRecord | None:
    """The group's record, None if there is none; CorruptError with its path if nobody can read it."""
    path = layout.record(group)
    (node,) = tree.read([Read(path)])
    if not node.exists:
        return None
    try:
        return decode_record(node.data)
    except CorruptError as error:
        raise CorruptError(f"{path}: {error}; an operator must mend it") from error


def edit_record(tree: BlockingTree, layout: Layout, group: str, edit: Edit) -> GroupRecord:
    """Change the group's record by compare-and-set; UsageError if there is no such group. Returns the record as it is.

    `edit` is asked again when somebody else was faster, or when nobody knows what became of the write: it must leave
    alone what it finds done.
    """
    if not group or "/" in group:
        raise UsageError(f"there is no group {group!r}; `zkcoord group list` shows them")
    path = layout.record(group)
    for _ in range(ATTEMPTS_MAX):
        folder, node = tree.read([Read(layout.group(group)), Read(path)])
        if not folder.exists and not node.exists:
            raise UsageError(f"there is no group {group!r}; `zkcoord group list` shows them")
        before = read_record(tree, layout, group) or DEFAULT_RECORD
        after = edit(before)
        if after == before:
            return before
        data = encode_record(after)
        write: Write = CreateNode(path, data) if node.stat is None else SetNode(path, data, node.stat.version)
        done = tree.commit(Transaction(writes=(write,), why=f"{group}: wish"))
        if done.outcome is Outcome.COMMITTED:
            return after
        before_next_attempt(tree, path, done)
    raise UnavailableError(f"{path}: others changed it {ATTEMPTS_MAX} times meanwhile: try again")


def before_next_attempt(tree: BlockingTree, path: str, done: CommitDone) -> None:
    """After a write that was refused, or nobody knows: read what is now. UsageError where no attempt will succeed."""
    if done.reason == "NoAuth":
        raise UsageError(f"{path}: no right to write there; log in as who may (--zookeeper-config)")
    tree.sync()


def wish(tree: BlockingTree, layout: Layout, group: str, name: str, **fields: Any) -> str:
    """Wish something; returns the run whose answer is to be waited for: of a wish that stands already, its own."""
    mine: Mapping[str, Any] = {**who_and_when(), **fields}

    def edit(record: GroupRecord) -> GroupRecord:
        standing = record.wish.get(name)
        return record if standing is not None else wished(record, name, mine)

    standing = edit_record(tree, layout, group, edit).wish.get(name) or mine
    if standing.get("run") != mine["run"]:
        say("notice", f"group {group}: {name} is already wished by {standing.get('who', 'somebody')}")
    return str(standing.get("run", ""))


def take_back(tree: BlockingTree, layout: Layout, group: str, names: tuple[str, ...]) -> bool:
    """Take wishes back; False if none of them stood, nor an answer to one."""
    stood = False

    def edit(record: GroupRecord) -> GroupRecord:
        nonlocal stood
        for name in names:
            stood = stood or record.wish.get(name) is not None or record.done.get(name) is not None
            record = wished(record, name, None)
        return record

    edit_record(tree, layout, group, edit)
    return stood


def wait(what: str, timeout_ms: int, ask: Callable[[], Answer | None], doing: Callable[[], str]) -> Answer:
    """Ask until there is an answer; says now and then what is waited for; UnavailableError when it takes too long."""
    began = time.monotonic()
    said = began
    while (answer := ask()) is None:
        now = time.monotonic()
        if now - began >= timeout_ms / 1000:
            raise UnavailableError(f"{what} is not done after {timeout_ms} ms ({doing()}): it stands, and will be")
        if now - said >= PROGRESS_SECONDS:
            say("waiting", f"{what}: {doing()}")
            said = now
        time.sleep(TURN_SECONDS)
    return answer


def answer_to(tree: BlockingTree, layout: Layout, group: str, name: str, run: str) -> Answer | None:
    """The answer to this run; None: not yet. A wish that is over and whose answer others wrote over was carried out."""
    record = read_record(tree, layout, group)
    if record is None:
        return Answer(run=run, state="deleted")
    done, standing = record.done.get(name), record.wish.get(name)
    if done is not None and done.get("run") == run and done.get("state") != "deleting":
        return Answer(run=run, state=str(done.get("state")), reason=done.get("reason"))
    if standing is None or standing.get("run", "") != run:
        return Answer(run=run, state="done")
    return None


def who_serves(tree: BlockingTree, address: str) -> str:
    """Who is waited for."""
    above = read_tree(tree, address)
    return "no coordinator is elected" if above.coordinator is None else f"coordinator {above.coordinator} serves"
