"""What the doctor has found out, as values; None is what nobody told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zkcoord.core.record import Policy
from zkcoord.core.severity import Severity
from zkcoord.core.view import Member
from zkcoord.tree.brokers_move import BrokersMove


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    severity: Severity
    area: str  # zookeeper, kafka, fleet, groups
    what: str
    evidence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One ZooKeeper server: its answers to four-letter words, by word; a word that it refuses is missing.

    `unreachable`: why nothing was answered at all.
    """

    address: str
    srvr: Mapping[str, str] = field(default_factory=dict)
    mntr: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    dirs: Mapping[str, str] = field(default_factory=dict)
    sessions: Mapping[int, int] = field(default_factory=dict)  # of its clients, by `cons`: id -> timeout, ms
    refused: tuple[str, ...] = ()
    unreachable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """What stands in ZooKeeper of Kafka and of zkcoord's programs."""

    read_ms: Sequence[int] = ()  # how long single reads took
    writes_anybody: Sequence[str] = ()  # nodes on which everybody may do everything
    logs_in: bool = False  # this program has credentials
    brokers: int | None = None  # registered ones; None: there is no such node
    topics: int | None = None
    move: BrokersMove | None = None  # of the brokers from ZooKeeper to KRaft; None: none has begun
    cluster_id: str | None = None
    from_kafka: bool = False  # the tree's topics come from Kafka's metadata, not from its nodes
    revision: str | None = None  # None: no zkcoord tree
    served: Sequence[str] = ()  # revisions that this program serves, oldest first
    serving: str | None = None
    candidates: Sequence[Mapping[str, object]] = ()
    candidate_sessions: Sequence[int] = ()  # the ids of their sessions
    candidates_ahead_ms: Mapping[str, int] = field(default_factory=dict)
    """Candidate -> how much later than ZooKeeper wrote its node its own clock says that it had begun before."""
    listing_bytes: Mapping[str, int] = field(default_factory=dict)  # path -> what the list of its children takes


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group."""

    group: str
    state: str
    store: str
    mode: str
    policy: Policy
    members: Sequence[Member] = ()
    clock_ahead_ms: Mapping[str, int] = field(default_factory=dict)  # consumer -> its wall clock, against ZooKeeper's
    problems: int = 0
    failed: bool = False
    quarantined: int = 0
    users: Sequence[str] = ()  # consumers of Kafka's own protocol in this group id
    left_to_kafka: bool = False  # it was handed over to them


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFacts:
    """What the brokers say. `unreachable`: why nothing was answered."""

    brokers: int = 0
    cluster_id: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)  # of one broker
    unreachable: str | None = None
