"""The commands by name. Each is loaded when it is used, because to load all of them takes twice as long."""

from __future__ import annotations

from collections import UserDict
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import click

ALL = {
    "audit": "audit",
    "backup": "backup",
    "completion": "completion",
    "config": "config_show",
    "consume": "consume",
    "coordinator": "coordinator",
    "coordinators": "coordinators",
    "demo": "demo",
    "doctor": "doctor",
    "group": "group.describe",
    "inventory": "inventory",
    "migrate": "migrate.schema",
    "offsets": "offsets.verify",
    "page": "page",
    "restore": "backup",
    "top": "top.top",
    "topic": "topic",
    "uninstall": "uninstall",
    "watch": "watch",
}
OF_GROUP = {
    "adopt": "group.adopt",
    "commands": "group.members",
    "config": "group.config",
    "delete": "group.requests",
    "hand-over": "group.hand_over:hand_over",
    "hold": "group.requests",
    "members": "group.members",
    "mend": "group.mend",
    "pause": "group.requests",
    "plan": "group.plan",
    "poke": "group.requests",
    "rebalance": "group.requests",
    "release": "group.adopt",
    "reset-offsets": "group.reset:reset_offsets",
    "resume": "group.requests",
    "take-back": "group.hand_over:take_back",
    "timeline": "group.timeline",
}
OF_OFFSETS = {
    "export": "offsets.files:export_offsets",
    "history": "offsets.history",
    "import": "offsets.files:import_offsets",
    "migrate": "offsets.migrate:migrate_offsets",
}
OF_MIGRATE = {"move": "migrate.move"}
"""Commands by name: the module, or "module:name" if the name in the module differs. A module of a group that makes
commands itself adds them there; they are not listed here."""


class Commands(UserDict[str, click.Command]):
    """The commands of a group by name. The module of a command is loaded when the command is looked up."""

    def __init__(self, places: Mapping[str, str]) -> None:
        super().__init__()
        self.data: dict[str, Any] = dict(places)

    def __getitem__(self, name: str) -> click.Command:
        found: str | click.Command = self.data[name]
        if not isinstance(found, str):
            return found
        module, _, attribute = found.partition(":")
        command: click.Command = getattr(import_module(f"zkcoord.cli.{module}"), attribute or name)
        self.data[name] = command
        return command


def load(command: click.Command, words: Iterable[str]) -> None:
    """Load the command that these words of a command line name."""
    for word in words:
        if isinstance(command, click.Group) and word in command.commands:
            command = command.commands[word]
