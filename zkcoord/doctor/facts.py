"""The facts that the doctor judges, as values; None where a fact is not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from zkcoord.core.record import Policy
from zkcoord.core.severity import Severity
from zkcoord.core.view import Member
from zkcoord.tree.brokers_move import BrokersMove

READ_ONLY = "read-only"  # the mode of a server that has no quorum and still answers reads
CALLER = "the caller"
ACTS = {
    "zookeeper": "whoever runs ZooKeeper",
    "kafka": "whoever runs Kafka",
    "fleet": "whoever runs the coordinators",
    "groups": "whoever runs the group's consumers",
}
"""Area -> who must act, unless a finding names somebody else."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    severity: Severity
    area: str  # zookeeper, kafka, fleet, groups
    what: str
    evidence: str
    remedy: str = ""
    who: str = ""  # who must act, if ACTS names another for this area

    @property
    def acts(self) -> str:
        """Who must act; "" if there is nothing to do."""
        return (self.who or ACTS[self.area]) if self.remedy else ""


class Silence(Enum):
    """How far the connection to a server came that did not answer."""

    NO_NAME = auto()  # its name has no address
    NO_ROUTE = auto()  # nothing comes back from its address
    REFUSED = auto()  # its machine answers that nobody listens on the port
    HANGS = auto()  # it accepts the connection, and answers nothing
    CLOSES = auto()  # it accepts the connection, and ends it without an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One ZooKeeper server: its answers to four-letter words. The answer to a word that it refuses is empty.

    `unreachable`: why it did not answer, or None; `silence`: how far the connection came then.
    """

    address: str
    srvr: Mapping[str, str] = field(default_factory=dict)
    mntr: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    dirs: Mapping[str, str] = field(default_factory=dict)
    sessions: Mapping[int, int] = field(default_factory=dict)  # its clients' sessions, by `cons`: id -> timeout, ms
    refused: tuple[str, ...] = ()
    without_quorum: bool = False  # the server says so
    unreachable: str | None = None
    silence: Silence = Silence.NO_ROUTE

    @property
    def mode(self) -> str | None:
        """leader, follower, observer, standalone or read-only, as the server says."""
        return self.srvr.get("Mode")

    @property
    def serves(self) -> bool | None:
        """True if it serves clients, in an ensemble as a part of the quorum. None: it did not tell."""
        if self.without_quorum or self.mode == READ_ONLY:
            return False
        return None if self.mode is None else True


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """The facts in ZooKeeper about Kafka and about zkcoord's programs."""

    read_ms: Sequence[int] = ()  # how long single reads took
    writes_anybody: Sequence[str] = ()  # nodes on which everybody may do everything
    logs_in: bool = False  # this program has credentials for ZooKeeper
    brokers: int | None = None  # how many are registered; None: there is no node for brokers
    topics: int | None = None
    move: BrokersMove | None = None  # of the brokers from ZooKeeper to KRaft; None: none has begun
    controllers_write: bool | None = None  # KRaft's controllers still write to ZooKeeper; None: no brokers move
    cluster_id: str | None = None
    from_kafka: bool = False  # the tree's topics come from Kafka's metadata, not from its nodes
    revision: str | None = None  # None: no zkcoord tree
    served: Sequence[str] = ()  # revisions that this program serves, oldest first
    serving: str | None = None
    candidates: Sequence[Mapping[str, object]] = ()
    candidate_sessions: Sequence[int] = ()  # the ids of their sessions
    candidates_ahead_ms: Mapping[str, int] = field(default_factory=dict)
    """Candidate -> how far its clock is ahead of ZooKeeper's, at least (`_ahead_ms` in `asking.py`)."""
    listing_bytes: Mapping[str, int] = field(default_factory=dict)  # path -> size of the list of its children


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group."""

    group: str
    state: str
    store: str
    mode: str
    policy: Policy
    members: Sequence[Member] = ()
    clock_ahead_ms: Mapping[str, int] = field(default_factory=dict)  # consumer -> its wall clock minus ZooKeeper's
    problems: int = 0
    failed: bool = False
    quarantined: int = 0
    users: Sequence[str] = ()  # consumers of Kafka's own protocol in this group id
    left_to_kafka: bool = False  # the group was handed over to them


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaFacts:
    """The facts that the brokers tell. `unreachable`: why none of them answered, or None."""

    brokers: int = 0
    cluster_id: str | None = None
    config: Mapping[str, str] = field(default_factory=dict)  # of one broker
    gone: Sequence[int] = ()  # brokers that should have replicas, but are not in the answer of the other brokers
    leaderless: Sequence[str] = ()  # partitions without a leader, as topic-number
    unreachable: str | None = None
