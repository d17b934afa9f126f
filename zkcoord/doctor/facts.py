"""What the doctor has found out, as values; None is what nobody told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from zkcoord.core.record import Policy
from zkcoord.core.severity import Severity
from zkcoord.core.view import Member
from zkcoord.tree.brokers_move import BrokersMove

READ_ONLY = "read-only"  # the mode of a server without a quorum that answers reads
CALLER = "the caller"
ACTS = {
    "zookeeper": "whoever runs ZooKeeper",
    "kafka": "whoever runs Kafka",
    "fleet": "whoever runs the coordinators",
    "groups": "whoever runs the group's consumers",
}
"""Area -> who must act, where a finding names nobody else."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    severity: Severity
    area: str  # zookeeper, kafka, fleet, groups
    what: str
    evidence: str
    remedy: str = ""
    who: str = ""  # must act, if it is somebody else than the area says

    @property
    def acts(self) -> str:
        """Who must act; nobody ("") where there is nothing to do."""
        return (self.who or ACTS[self.area]) if self.remedy else ""


class Silence(Enum):
    """How far a server was reached that did not answer."""

    NO_NAME = auto()  # its name has no address
    NO_ROUTE = auto()  # nothing comes back from its address
    REFUSED = auto()  # its machine answers that nobody listens on the port
    HANGS = auto()  # it takes the connection, and says nothing
    CLOSES = auto()  # it takes the connection, and ends it without a word


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """One ZooKeeper server: its answers to four-letter words, by word; a word that it refuses is missing.

    `unreachable`: why nothing was answered at all; `silence`: how far it was reached then.
    """

    address: str
    srvr: Mapping[str, str] = field(default_factory=dict)
    mntr: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)
    dirs: Mapping[str, str] = field(default_factory=dict)
    sessions: Mapping[int, int] = field(default_factory=dict)  # of its clients, by `cons`: id -> timeout, ms
    refused: tuple[str, ...] = ()
    without_quorum: bool = False  # as it says
    unreachable: str | None = None
    silence: Silence = Silence.NO_ROUTE

    @property
    def mode(self) -> str | None:
        """leader, follower, observer, standalone or read-only, as the server says."""
        return self.srvr.get("Mode")

    @property
    def serves(self) -> bool | None:
        """True if it serves clients, with a quorum behind it where there are several; None: it did not tell."""
        if self.without_quorum or self.mode == READ_ONLY:
            return False
        return None if self.mode is None else True


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeFacts:
    """What stands in ZooKeeper of Kafka and of zkcoord's programs."""

    read_ms: Sequence[int] = ()  # how long single reads took
    writes_anybody: Sequence[str] = ()  # nodes on which everybody may do everything
    logs_in: bool = False  # this program has credentials
    brokers: int | None = None  # registered ones; None: there is no such node
    topics: int | None = None
    move: BrokersMove | None = None  # of the brokers from ZooKeeper to KRaft; None: none has begun
    controllers_write: bool | None = None  # KRaft's, to ZooKeeper; None: no brokers move
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
    gone: Sequence[int] = ()  # brokers that should have replicas, and that the others do not see
    leaderless: Sequence[str] = ()  # partitions without a leader, as topic-number
    unreachable: str | None = None
