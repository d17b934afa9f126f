"""What the public classes and the command line can be told: each setting's type, default, range and help.

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
"""A dead consumer is noticed after this; shorter ones suffer from garbage collections and slow disks of an ensemble."""

REBALANCE_TIMEOUT_MS = 60_000
"""How long a consumer may take to acknowledge, as the old consumers' patience and Kafka's `max.poll.interval.ms`
together have taught: long enough for what was fetched to be finished."""

SPARK_REBALANCE_TIMEOUT_MS = 300_000
"""A Spark batch must be able to end: Kafka's own `max.poll.interval.ms`."""

ASSIGNORS = ("sticky", "range", "roundrobin-1.0", "roundrobin-0.8")
"""What a consumer offers, most wanted first: least movement, then what the old consumers compute. All that every
coordinator has: the coordinator computes, so a group's record can choose any of them without a restart."""

OFFSET_CHECKPOINT_MS = 3_600_000
"""How old a commit in Kafka grows before it is made again: far below any retention of offsets (a day was the default of
brokers before 2.0). As much may be read again when Kafka loses it."""

TOOL_TIMEOUT_MS = 15_000
"""How long a command-line tool waits for ZooKeeper before it says that it cannot be reached; less where nobody listens
(`REFUSED_WAIT_MS` in `shell/zk/blocking.py`)."""

DEMO_SECONDS, DEMO_RATE, DEMO_PARTITIONS = 40, 10_000, 8
"""The demo: long enough to see calm between its events, little enough for a small machine beside three Sparks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one setting may be, and how it is spelled outside of Python."""

    kind: str  # "number", "text", "flag", "choice", "function", "config", or "other", which its user checks
    least: int = 0
    most: int = NUMBER_MAX
    among: tuple[str, ...] = ()
    option: str = ""  # of format("zkcoord")
    flag: str = ""  # of `zkcoord consume`, with its placeholder
    help: str = ""  # of that flag

    def check(self, name: str, value: object) -> None:
        """UsageError for a value that this setting cannot have."""
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
    """What every consumer can be told about its membership; `zkcoord.Consumer` says what each means."""

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
        """UsageError for a value that a setting by itself cannot have. None is right where it is the default."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None or each.default is not None:
                each.metadata["setting"].check(each.name, value)


def settings_of(kind: type[MemberOptions]) -> dict[str, Setting]:
    """Name -> setting, in their order."""
    return {each.name: each.metadata["setting"] for each in fields(kind)}


def version() -> str:
    """The installed version of zkcoord."""
    from importlib import metadata  # it loads a tenth of what else a command loads

    return metadata.version("zkcoord")
