"""The embedded servers of a move to KRaft have the files that docs/kraft.md has people write, but for addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.pages import shell_block
from zkcoord.embedded import EmbeddedController, EmbeddedKRaft
from zkcoord.embedded.artifacts import KAFKA_VERSION
from zkcoord.embedded.kraft import CONTROLLER_ID, voter

PORT = 9093
HOST = re.compile(r"controller\d:")
OF_SMALL_MACHINES = {"log.dirs", "num.network.threads", "num.io.threads"}


def settings(lines: Iterable[str]) -> dict[str, object]:
    """A file's settings, addresses on the loopback; those with commas as a set."""
    found: dict[str, object] = {}
    for line in lines:
        key, _, value = HOST.sub("127.0.0.1:", line.partition(" #")[0].strip()).partition("=")
        found[key] = frozenset(value.split(",")) if "," in value else value
    return found


def settings_of(configured: Mapping[str, str]) -> dict[str, object]:
    return settings(f"{key}={value}" for key, value in configured.items())


def test_controllers_and_brokers_that_move_have_the_files_of_the_page(tmp_path: Path) -> None:
    voters = ",".join(voter(CONTROLLER_ID + n, PORT) for n in range(3))
    how = {"port": PORT, "version": KAFKA_VERSION}
    controller = EmbeddedController("id", tmp_path, voters=voters, migrate_from="zk1:2181", **how)  # type: ignore[arg-type]
    broker = EmbeddedKRaft(tmp_path, controller=controller, version=KAFKA_VERSION)

    its_own = settings(controller.configuration().splitlines())
    assert settings(shell_block("kraft.md", "1 Start the controllers", 2)) == {
        key: value for key, value in its_own.items() if key not in OF_SMALL_MACHINES
    }
    beside = settings(shell_block("kraft.md", "2 Restart the brokers for the migration"))
    assert beside == settings_of(controller.migrating())
    alone = settings(shell_block("kraft.md", "3 Restart the brokers without ZooKeeper"))
    assert alone.items() <= settings(broker.configuration().splitlines()).items()
