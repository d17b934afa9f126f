"""`zkcoord coordinators`: lists the candidates and the elected one, and makes one resign."""

from __future__ import annotations

import time
from typing import Any

import click

from zkcoord.cli.options import Group, Settings, at_least, number_option, pass_settings
from zkcoord.cli.output import print_json, table, warn
from zkcoord.cli.requesting import TURN_SECONDS, Answer, by_version, wait, who_and_when
from zkcoord.errors import UsageError
from zkcoord.group_report import read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.tree.candidate import asked_to_resign, describe, protocols_of, with_resign
from zkcoord.tree.paths import CANDIDATES
from zkcoord.tree.snapshot import Kind, Node, Read
from zkcoord.tree.writes import SetNode, Write

ELECTION_SECONDS = 30.0
COLUMNS = ("COORDINATOR", "STATE", "EPOCH", "HOST", "PID", "VERSION", "PROTOCOLS", "SINCE")


@click.group(cls=Group)
def coordinators() -> None:
    """The coordinators that stand for election; one of them serves."""


@coordinators.command(name="list")
@pass_settings
def list_(settings: Settings) -> None:
    """List who serves, and who stands by."""
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        candidates = _candidates(tree)
    documents = [_document(node, above.coordinator, above.epoch) for node in candidates]
    if not documents:
        warn("nobody stands for election: start a coordinator")
    if settings.json:
        for document in documents:
            print_json(document)
    else:
        keys = [column.lower() for column in COLUMNS]
        click.echo(table(COLUMNS, [[document[key] for key in keys] for document in documents]))


@coordinators.command()
@click.argument("number", metavar="N", type=at_least(0))
@number_option("--timeout-ms", default=60_000, text="How long to wait for it.")
@pass_settings
def resign(settings: Settings, number: int, timeout_ms: int) -> None:
    """Make coordinator N end what it has begun and step back; another one serves at once.

    It stands for election again after its session timeout.
    """
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        above = read_tree(tree, address)
        path = above.layout.candidate(number)
        asked = _ask(tree, path, number)
        others = [node for node in _candidates(tree) if node.path != path]
        if not others:
            warn("nobody else stands for election: until it does so again nobody serves")

        def gone() -> Answer | None:
            (node,) = tree.read([Read(path)])
            return Answer(run="", state="resigned") if node.stat is None or node.stat.czxid != asked else None

        wait(f"coordinator {number} resigning", timeout_ms, gone, lambda: "its node still stands")
        now = _successor(tree, address) if others else None
    if settings.json:
        print_json({"coordinator": number, "state": "resigned", "serving": now})
    else:
        click.echo(f"coordinator {number} has resigned; {'nobody' if now is None else f'coordinator {now}'} serves")


def _successor(tree: BlockingTree, address: str) -> str | None:
    """Return who serves, as soon as somebody does; None if that takes longer than an election (milliseconds)."""
    end = time.monotonic() + ELECTION_SECONDS
    while (now := read_tree(tree, address).coordinator) is None and time.monotonic() < end:
        time.sleep(TURN_SECONDS)
    return now


def _ask(tree: BlockingTree, path: str, number: int) -> int:
    """Set `resign` in the candidate's node; return that candidate's czxid."""

    def attempt() -> tuple[int, Write | None]:
        (node,) = tree.read([Read(path)])
        if node.stat is None:
            raise UsageError(f"there is no coordinator {number}; `zkcoord coordinators list` shows them")
        if asked_to_resign(node.data) is not None:
            return node.stat.czxid, None
        return node.stat.czxid, SetNode(path, with_resign(node.data, who_and_when()), node.stat.version)

    return by_version(tree, path, "resign", attempt)


def _candidates(tree: BlockingTree) -> list[Node]:
    """Return the candidates' nodes, by number."""
    (listed,) = tree.read([Read(CANDIDATES, Kind.CHILDREN)])
    names = sorted(listed.children, key=lambda name: (len(name), name))
    nodes = tree.read([Read(f"{CANDIDATES}/{name}") for name in names]) if names else ()
    return [node for node in nodes if node.exists]


def _document(node: Node, serving: str | None, epoch: int | None) -> dict[str, Any]:
    number = node.path.rpartition("/")[2]
    said = describe(node.data)
    resigning = asked_to_resign(node.data) is not None
    serves = number == serving
    return {
        "coordinator": number,
        "state": "resigning" if resigning else "serving" if serves else "standing by",
        "epoch": epoch if serves else None,
        **{key: said.get(key) for key in ("host", "pid", "version")},
        "protocols": "-".join(map(str, protocols_of(node.data))),
        "since": said.get("since"),
    }
