"""All metrics: the only place that spells their names. Units are base units, as Prometheus recommends."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"

FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Buckets in seconds for durations that depend on machines only."""

SLOW = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 150.0, 300.0, 600.0)
"""Buckets in seconds for durations that also depend on applications."""

AGES_SECONDS = (1, 10, 60, 300)
"""For each of these ages the outstanding commands that are at least as old are counted."""


@dataclass(frozen=True, slots=True)
class Name:
    """One metric. The client library appends `_total` to the name of a counter's samples."""

    name: str
    kind: str
    text: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    looked_up: bool = False  # for a counter: another object counts, and the value is read at each request, as of gauges

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples."""
        if self.kind == HISTOGRAM:
            return tuple(f"{self.name}_{end}" for end in ("bucket", "count", "sum"))
        return (f"{self.name}_total" if self.kind == COUNTER else self.name,)


Sample = tuple[Name, tuple[str, ...], float]
"""A metric, the values of its labels, and its present value."""

# of every program
BUILD = Name("zkcoord_build_info", GAUGE, "Always 1; the version of zkcoord.", ("version",))
EVENTS = Name("zkcoord_events", COUNTER, "Events of the log, by their names.", ("role", "event"))
STEP = Name("zkcoord_loop_step_seconds", HISTOGRAM, "How long one step of the loop took.", ("role",), FAST)
REQUESTS = Name(
    "zkcoord_zookeeper_requests", COUNTER, "Requests to ZooKeeper that were answered.", ("role", "kind", "outcome")
)
LATENCY = Name("zkcoord_zookeeper_request_seconds", HISTOGRAM, "From a request to its answer.", ("role", "kind"), FAST)
CONNECTED = Name("zkcoord_zookeeper_connected", GAUGE, "Loops that are connected to ZooKeeper.", ("role",))
SESSIONS = Name("zkcoord_zookeeper_sessions_opened", COUNTER, "Sessions that were begun.", ("role",))

# of a coordinator
SERVING = Name("zkcoord_coordinator_serving", GAUGE, "1 for the coordinator that serves, 0 for a standby.")
EPOCH = Name("zkcoord_coordinator_epoch", GAUGE, "The epoch in which it serves; 0 while it does not.")
ELECTIONS = Name("zkcoord_coordinator_elections", COUNTER, "Elections that it won.")
STATE = Name("zkcoord_group_state", GAUGE, "1 for the state that the group is in.", ("group", "state"))
GENERATION = Name("zkcoord_group_generation", GAUGE, "How often the wanted assignment has changed.", ("group",))
MEMBERS = Name("zkcoord_group_members", GAUGE, "Registered members.", ("group",))
PARTITIONS = Name("zkcoord_group_partitions", GAUGE, "Partitions of the group's topics.", ("group",))
UNOWNED = Name("zkcoord_group_unowned_partitions", GAUGE, "Wanted partitions without a living owner.", ("group",))
UNOWNED_AGE = Name(
    "zkcoord_group_unowned_age_seconds", GAUGE, "For how long the first of these is without an owner.", ("group",)
)
UNOWNED_TIME = Name(
    "zkcoord_group_unowned_seconds",
    COUNTER,
    "Partition-seconds without a reader, counted when a hand-over is complete.",
    ("group",),
)
LEAVING = Name(
    "zkcoord_brokers_leave_zookeeper",
    GAUGE,
    "1 while topics come from ZooKeeper and Kafka's brokers leave it, or have left it.",
)
SILENT = Name(
    "zkcoord_kraft_controllers_silent",
    GAUGE,
    "1 while Kafka's brokers are being moved to KRaft, and the controllers have told ZooKeeper nothing for 30 s.",
)
COMMANDS = Name("zkcoord_group_commands", GAUGE, "Outstanding commands that are at least so old.", ("group", "older"))
COMMAND_AGE = Name("zkcoord_group_command_age_seconds", GAUGE, "Age of the oldest outstanding command.", ("group",))
PROBLEM = Name("zkcoord_group_problem", GAUGE, "1 while the group has this kind of problem.", ("group", "problem"))
REPORTED_LAG = Name("zkcoord_group_reported_lag", GAUGE, "Lag, by what members last told the coordinator.", ("group",))
HANDOVER = Name(
    "zkcoord_handover_seconds", HISTOGRAM, "From the first command to the start's acknowledgement.", ("group",), SLOW
)
STAGE = Name(
    "zkcoord_handover_stage_seconds",
    HISTOGRAM,
    "The stages of it: stop (until released), grant (until the start is sent), start (until obeyed); and their parts.",
    ("group", "stage"),
    SLOW,
)
RETRIES = Name("zkcoord_group_retries", COUNTER, "Further periods that silent members were given.", ("group",))
EVICTIONS = Name("zkcoord_group_evictions", COUNTER, "Members that were evicted.", ("group",))

# of a consumer
REGISTERED = Name("zkcoord_consumer_registered", GAUGE, "1 while it is a member.", ("group",))
LEASED = Name("zkcoord_consumer_lease_seconds", GAUGE, "For how long it may still read, without an answer.", ("group",))
READABLE = Name("zkcoord_consumer_partitions", GAUGE, "Partitions that it reads.", ("group",))
OBEYED = Name("zkcoord_consumer_generation", GAUGE, "The highest generation that it has obeyed.", ("group",))
LAG = Name("zkcoord_consumer_lag", GAUGE, "Records that are left to read, as its application reports.", ("group",))
PROGRESS = Name(
    "zkcoord_consumer_progress", COUNTER, "Work that was done, in its application's unit.", ("group",), (), True
)

# of a Spark consumer also
BATCHES = Name(
    "zkcoord_spark_batches", COUNTER, "Batches, by what became of them.", ("group", "outcome"), looked_up=True
)
OFFSETS = Name("zkcoord_spark_offsets", COUNTER, "Offsets of committed batches.", ("group",), looked_up=True)
BATCH_TIME = Name(
    "zkcoord_spark_batch_seconds", COUNTER, "Time that batches spent, by part.", ("group", "part"), (), True
)

# of `zkcoord audit`
FINDINGS = Name("zkcoord_audit_findings", GAUGE, "What is found wrong now.", ("group", "check", "severity"))
VERDICTS = Name("zkcoord_audit_partitions", GAUGE, "Partitions by Burrow's verdict.", ("group", "verdict"))
AUDIT_LAG = Name("zkcoord_audit_lag", GAUGE, "Lag by ZooKeeper and Kafka, as far as it is known.", ("group",))
READINGS = Name("zkcoord_audit_readings", COUNTER, "Readings of all groups.", ("outcome",), looked_up=True)
READING_AGE = Name("zkcoord_audit_reading_age_seconds", GAUGE, "Since the last reading that succeeded.")

ALL = tuple(value for value in list(globals().values()) if isinstance(value, Name))
