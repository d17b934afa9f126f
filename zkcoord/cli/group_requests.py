"""`zkcoord group rebalance|hold|pause|resume|poke|delete`: operators' requests."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import click

from zkcoord.cli.forgetting import forget_in_kafka
from zkcoord.cli.group_waiting import first_problem
from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import print_json
from zkcoord.cli.requesting import Answer, answer_to, ask, read_record, take_back, wait, who_serves
from zkcoord.core.record import DELETE, HOLD, PAUSE, POKE, REBALANCE, RESET
from zkcoord.core.requests import DONE, REFUSED, STANDING, has_stopped
from zkcoord.errors import UsageError
from zkcoord.group_report import read_group, read_tree
from zkcoord.migrate import BlockingTree
from zkcoord.tree.paths import Layout

timeout = number_option("--timeout-ms", default=60_000, text="How long to wait until it is done.")


def _carry_out(settings: Settings, whose: str, name: str, timeout_ms: int, **fields: Any) -> None:
    """Write the request, wait for the answer, print it; UsageError with the reason when it is refused."""
    address = settings.zookeeper_address()
    with settings.tree() as tree:
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
    _print(settings, whose, name, answer)


def _waits_for(tree: BlockingTree, layout: Layout, address: str, group: str) -> str:
    """Return who carries the request out, and the group's node that may prevent it."""
    problem = ""
    with suppress(UsageError):  # a group that is gone
        problem = first_problem(read_group(tree, layout, group))
    return who_serves(tree, address) + (problem and f"; {problem}")


def _print(settings: Settings, whose: str, name: str, answer: Answer) -> None:
    if settings.json:
        print_json({"group": whose, "wish": name, "run": answer.run, "state": answer.state})
    elif name == DELETE and answer.state == DONE:
        click.echo(f"group {whose}: deleted; its offsets are kept (--offsets deletes them, too)")
    else:
        click.echo(f"group {whose}: {answer.state}")


def _asking(request: str, text: str) -> click.Command:
    """Return the command that makes this request; `text` is its help."""

    @click.command(request, cls=Command, help=text)
    @click.argument("name", metavar="G")
    @timeout
    @pass_settings
    def command(settings: Settings, name: str, timeout_ms: int) -> None:
        _carry_out(settings, name, request, timeout_ms)

    return command


@click.command(cls=Command)
@click.argument("name", metavar="G")
@timeout
@pass_settings
def resume(settings: Settings, name: str, timeout_ms: int) -> None:
    """End a hold and a pause of group G, and a reset of its offsets that somebody has begun."""
    address = settings.zookeeper_address()
    with settings.tree() as tree:
        layout = read_tree(tree, address).layout
        record = read_record(tree, layout, name)
        if record is not None and record.handed_over:
            raise UsageError(
                f"group {name} is handed over to consumers of Kafka's own protocol: stop these, then run"
                f" `zkcoord group take-back {name}`"
            )
        stood = take_back(tree, layout, name, (*STANDING, RESET))

        def over() -> Answer | None:
            record = read_record(tree, layout, name)
            left = record is not None and (has_stopped(record) or any(map(record.done.get, STANDING)))
            return None if left else Answer(run="", state="resumed" if stood else "was neither held nor paused")

        answer = wait(f"resume of group {name}", timeout_ms, over, lambda: who_serves(tree, address))
    if settings.json:
        print_json({"group": name, "resumed": stood})
    else:
        click.echo(f"group {name}: {answer.state}")


@click.command(cls=Command)
@click.argument("name", metavar="G")
@click.option("--offsets", is_flag=True, help="Also its offsets, and with them all that is left of it.")
@timeout
@pass_settings
def delete(settings: Settings, name: str, timeout_ms: int, offsets: bool) -> None:
    """Delete group G, which must have no members.

    Its offsets stay unless --offsets is given, and with them what belongs to them: whoever joins it again continues
    there. What people decided about the group is forgotten. `group list` does not show it until then. A group without
    offsets is deleted whole. Offsets in Kafka go first: of a group that has some --offsets needs --bootstrap-servers.
    """
    if offsets:
        address = settings.zookeeper_address()
        with settings.tree() as tree:
            forget_in_kafka(settings, tree, read_tree(tree, address).layout, name)
    _carry_out(settings, name, DELETE, timeout_ms, **({"offsets": True} if offsets else {}))


VERBS: tuple[click.Command, ...] = (
    _asking(
        REBALANCE,
        "Ask the assignor again for group G, and forget a failure.\n\n"
        "Nothing moves where everything is in balance; `plan` shows what would.",
    ),
    _asking(HOLD, "Keep group G as it is until `resume`: nothing is stopped, free partitions are still given out."),
    _asking(PAUSE, "Stop all consumers of group G, and give them nothing until `resume`. They stay members."),
    _asking(
        POKE,
        "Have the old members of group G claim their partitions again.\n\n"
        "It frees what one of them gave up: each releases and claims all of its share once. At most once a minute.",
    ),
    resume,
    delete,
)
