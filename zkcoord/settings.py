"""The settings of the public classes and the command line: type, default, range and help of each.

Times are in milliseconds. Formats and policies have their defaults beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, TypedDict

from zkcoord.core.given import (
    NUMBER_MAX,
    given_choice,
    given_config,
    given_flag,
    given_function,
    given_number,
    given_text,
)
from zkcoord.tree.codec import INT32_MAX
from zkcoord.tree.registration import THREADS_MAX

SESSION_TIMEOUT_MS = 10_000
"""A dead consumer is noticed after this time. With a shorter timeout, garbage collections and slow disks of the
ensemble would end sessions of living consumers."""

REBALANCE_TIMEOUT_MS = 60_000
"""How long a consumer may take to acknowledge a command: long enough to finish the records that it has fetched. It is
chosen by the experience with the old consumers' retries and with Kafka's `max.poll.interval.ms`."""

SPARK_REBALANCE_TIMEOUT_MS = 300_000
"""Long enough for a Spark batch to end: Kafka's default of `max.poll.interval.ms`."""

ASSIGNORS = ("sticky", "range", "roundrobin-1.0", "roundrobin-0.8")
"""The assignors that a consumer offers by default, most wanted first: the one with the fewest moves, then those of the
old consumers. These are all that every coordinator has. The coordinator computes, so a group's record can choose any of
them without a restart of consumers."""

OFFSET_CHECKPOINT_MS = 3_600_000
"""The age at which a commit in Kafka is made again, far below any retention of offsets (brokers before 2.0 kept them a
day by default). If Kafka loses its commits, the records of this time may be read again."""

TOOL_TIMEOUT_MS = 15_000
"""How long a command-line tool waits for ZooKeeper before it gives up. It waits less if nothing listens at the address
(`REFUSED_WAIT_MS` in `shell/zk/blocking.py`)."""

DEMO_SECONDS, DEMO_RATE, DEMO_PARTITIONS = 40, 10_000, 8
"""The demo's defaults: long enough to see calm between its events; few enough records for a small machine that also
runs three Sparks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The values that one setting may have, and its names outside of Python."""

    kind: str  # "number", "text", "flag", "choice", "function", "config", or "other", which the setting's user checks
    least: int = 0
    most: int = NUMBER_MAX
    among: tuple[str, ...] = ()
    option: str = ""  # of format("zkcoord")
    flag: str = ""  # of `zkcoord consume`, with its placeholder
    help: str = ""  # of that flag

    def check(self, name: str, value: object) -> None:
        """Raise UsageError for a value that this setting cannot have."""
        checks: Mapping[str, Callable[[str, object], object]] = {
            "number": partial(given_number, low=self.least, high=self.most),
            "text": given_text,
            "flag": given_flag,
            "choice": partial(given_choice, among=self.among),
            "function": given_function,
            "config": given_config,
        }
        if self.kind in checks:
            checks[self.kind](name, value)


def setting(default: Any, kind: str, option: str = "", flag: str = "", text: str = "", **limits: Any) -> Any:
    """Return a field that is a setting. `text` is the help of its flag."""
    said = Setting(kind=kind, option=option, flag=flag, help=text, **limits)
    return field(default=default, metadata={"setting": said})


class MemberChoices(TypedDict, total=False):
    """The keyword arguments of `MemberOptions`, for type checkers (a test compares)."""

    include: str | None
    exclude: str | None
    threads: int
    instance: str | None
    hold_ms: int
    session_timeout_ms: int
    rebalance_timeout_ms: int
    assignors: Sequence[str]
    rack: str | None
    capacity: int | None
    offset_checkpoint_ms: int
    zookeeper_config: Any
    metrics: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """The options of every consumer about its membership; `zkcoord.Consumer` says what each means."""

    include: str | None = setting(
        None, "text", "subscribePattern", "--include REGEX", "Topics whose whole names match this Java regex."
    )
    exclude: str | None = setting(
        None, "text", "", "--exclude REGEX", "Topics whose names do not match, without Kafka's internal topics."
    )
    threads: int = setting(
        1, "number", "threads", "--threads N", "Number of its shares of the work.", least=1, most=THREADS_MAX
    )
    instance: str | None = setting(
        None, "text", "instance", "--consumer-id C", "A stable name of this consumer (its instance); part of its id."
    )
    hold_ms: int = setting(
        0, "number", "holdMs", "--hold-ms N", "Time that its share waits for this consumer to come back."
    )
    session_timeout_ms: int = setting(SESSION_TIMEOUT_MS, "number", "sessionTimeoutMs", least=1)
    rebalance_timeout_ms: int = setting(REBALANCE_TIMEOUT_MS, "number", "rebalanceTimeoutMs", least=1)
    assignors: Sequence[str] = setting(
        ASSIGNORS, "other", "assignors", "--assignor A", "Assignors that it offers, most wanted first; may be repeated."
    )
    rack: str | None = setting(
        None, "text", "rack", "--rack R", "The rack where it runs. `sticky` prefers partitions of this rack."
    )
    capacity: int | None = setting(
        None,
        "number",
        "capacity",
        "--capacity N",
        "The largest weight of partitions that it takes.",
        least=1,
        most=INT32_MAX,
    )
    offset_checkpoint_ms: int = setting(OFFSET_CHECKPOINT_MS, "number", "offsetCheckpointMs", least=1)
    zookeeper_config: Any = setting(None, "other", "zookeeperConfig")
    metrics: str | None = setting(
        None, "text", "metrics", "--metrics HOST:PORT", "Serve metrics and health at this address."
    )

    def check_values(self) -> None:
        """Raise UsageError for a value that its setting cannot have. None is allowed where it is the default."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                each.metadata["setting"].check(each.name, value)


def settings_of(kind: type[MemberOptions]) -> dict[str, Setting]:
    """Return name -> setting, in the order of the fields."""
    return {each.name: each.metadata["setting"] for each in fields(kind)}


def version() -> str:
    """Return the installed version of zkcoord."""
    from importlib import metadata  # imported only here: it is a tenth of what a command loads without it

    return metadata.version("zkcoord")
