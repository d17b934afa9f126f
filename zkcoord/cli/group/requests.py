"""`zkcoord group rebalance|hold|pause|resume|poke|delete`: the requests of operators."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from zkcoord.cli.kafka_options import kafka_client
from zkcoord.cli.options import Command, Settings, number_option, pass_settings
from zkcoord.cli.output import tell
from zkcoord.core.record import DELETE, HOLD, PAUSE, POKE, REBALANCE
from zkcoord.core.requests import DONE
from zkcoord.errors import UsageError
from zkcoord.group_report import read_tree
from zkcoord.operating.carrying_out import carry_out, end_standing
from zkcoord.operating.copies import remove_lost_copy
from zkcoord.operating.forgetting import forget_in_kafka, refuse_handed_over
from zkcoord.operating.requesting import Answer

timeout = number_option("--timeout-ms", default=60_000, text="How long to wait until it is done.")


def _carry_out(settings: Settings, whose: str, name: str, timeout_ms: int, **fields: Any) -> None:
    with settings.tree() as tree:
        answer = carry_out(tree, settings.zookeeper_address(), whose, name, timeout_ms, **fields)
    _print(settings, whose, name, answer)


def _print(settings: Settings, whose: str, name: str, answer: Answer, text: str = "") -> None:
    kept = name == DELETE and answer.state == DONE
    text = text or ("deleted; its offsets are kept (--offsets deletes them, too)" if kept else answer.state)
    document = {"group": whose, "request": name, "run": answer.run, "state": answer.state}
    tell(settings, document, f"group {whose}: {text}")


def _asking(request: str, text: str) -> click.Command:
    """Return the command that makes this request. `text` is the command's help."""

    @click.command(request, cls=Command, help=text, example=f"zkcoord group {request} etl")
    @click.argument("name", metavar="G")
    @timeout
    @pass_settings
    def command(settings: Settings, name: str, timeout_ms: int) -> None:
        _carry_out(settings, name, request, timeout_ms)

    return command


@click.command(cls=Command, example="zkcoord group resume etl")
@click.argument("name", metavar="G")
@timeout
@pass_settings
def resume(settings: Settings, name: str, timeout_ms: int) -> None:
    """End a hold and a pause of group G, and a reset of its offsets that has not ended."""
    with settings.tree() as tree:
        stood = end_standing(tree, settings.zookeeper_address(), name, timeout_ms)
    text = "resumed" if stood else "was neither held nor paused"
    tell(settings, {"group": name, "resumed": stood}, f"group {name}: {text}")


@click.command(cls=Command, example="zkcoord group delete etl --offsets")
@click.argument("name", metavar="G")
@click.option("--offsets", is_flag=True, help="Also delete its offsets, and all else of the group.")
@click.option(
    "--copy-of",
    metavar="H:P[/CHROOT]",
    help="Delete a copy and its offsets: the tree from which it arrives is lost.",
)
@timeout
@pass_settings
def delete(settings: Settings, name: str, timeout_ms: int, offsets: bool, copy_of: str | None) -> None:
    """Delete group G, which must have no members.

    Without --offsets the group's offsets stay, and with them what belongs to them: a consumer that joins the group
    again continues at these offsets. Until then `group list` does not show the group. What people decided about the
    group is forgotten. A group without offsets is deleted whole. --offsets first deletes offsets in Kafka. If the group
    has some there, --offsets needs --bootstrap-servers.

    --copy-of deletes the copy of a `migrate move` that can neither end nor be given up, since nobody can reach the tree
    at that address again. Before that, `offsets export` shows how far the copy is.
    """
    if copy_of is not None and offsets:
        raise UsageError("--copy-of deletes the copy's offsets, too: leave --offsets out")
    with settings.tree() as tree:
        layout = read_tree(tree, settings.zookeeper_address()).layout
        if copy_of is not None:
            remove_lost_copy(tree, layout, name, copy_of)
            _print(settings, name, DELETE, Answer(run="", state=DONE), "the copy is deleted")
            return
        if offsets:
            open_kafka = None if settings.kafka_address() is None else partial(kafka_client, settings)
            forget_in_kafka(tree, layout, name, open_kafka)
        else:
            refuse_handed_over(tree, layout, name)
    _carry_out(settings, name, DELETE, timeout_ms, **({"offsets": True} if offsets else {}))


rebalance = _asking(
    REBALANCE,
    "Ask the assignor again for group G, and forget a failure.\n\n"
    "Nothing moves if the group is in balance. `zkcoord group plan` shows what would move.",
)
hold = _asking(HOLD, "Keep group G as it is until `resume`: nothing is stopped, free partitions are still given out.")
pause = _asking(PAUSE, "Stop all consumers of group G, and give them nothing until `resume`. They stay members.")
poke = _asking(
    POKE,
    "Have the old members of group G claim their partitions again.\n\n"
    "Each old member releases and claims all of its share once. So a partition that one of them gave up gets a reader "
    "again. At most once a minute.",
)
