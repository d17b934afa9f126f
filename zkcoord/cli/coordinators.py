"""`zkcoord coordinators`: lists the candidates and the serving one, and makes one resign."""

from __future__ import annotations

import click

from zkcoord.cli.options import Group, Settings, at_least, number_option, pass_settings
from zkcoord.cli.output import show, tell
from zkcoord.group_report import read_tree
from zkcoord.operating.coordinators import ask_to_resign, candidates, coordinator_documents, successor
from zkcoord.operating.requesting import Answer, wait
from zkcoord.operating.saying import warn
from zkcoord.tree.snapshot import Read

COLUMNS = ("COORDINATOR", "STATE", "EPOCH", "HOST", "PID", "VERSION", "PROTOCOLS", "SINCE")


@click.group(cls=Group, example="zkcoord coordinators list")
def coordinators() -> None:
    """List the coordinators, or make one resign."""


@coordinators.command(name="list", example="zkcoord coordinators list --output json")
@pass_settings
def list_(settings: Settings) -> None:
    """List the coordinators: which one serves, and which ones stand by."""
    with settings.tree() as tree:
        above = read_tree(tree, settings.zookeeper_address())
        documents = coordinator_documents(tree, above)
    if not documents:
        warn("nobody stands for election: start a coordinator")
    show(settings, documents, COLUMNS, [[document[column.lower()] for column in COLUMNS] for document in documents])


@coordinators.command(example="zkcoord coordinators resign 0")
@click.argument("number", metavar="N", type=at_least(0))
@number_option("--timeout-ms", default=60_000, text="How long to wait until it has resigned.")
@pass_settings
def resign(settings: Settings, number: int, timeout_ms: int) -> None:
    """Make coordinator N finish what it has begun, and resign; another one serves at once.

    It stands for election again after its session timeout.
    """
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        above = read_tree(tree, address)
        path = above.layout.candidate(number)
        asked = ask_to_resign(tree, path, number)
        others = [node for node in candidates(tree) if node.path != path]
        if not others:
            warn("nobody else stands for election: until it does so again nobody serves")

        def gone() -> Answer | None:
            (node,) = tree.read([Read(path)])
            return Answer(run="", state="resigned") if node.stat is None or node.stat.czxid != asked else None

        wait(f"coordinator {number} resigning", timeout_ms, gone, lambda: "its node still stands")
        now = successor(tree, address) if others else None
    said = f"coordinator {number} has resigned; {'nobody' if now is None else f'coordinator {now}'} serves"
    tell(settings, {"coordinator": number, "state": "resigned", "serving": now}, said)
