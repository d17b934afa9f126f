"""The only place that reads and writes group records: what people decide about a group (`/zkcoord/groups/<g>`).

People and tools write it. So a bad value is refused with its key and the allowed values, and an unknown key is kept by
decode and encode, wherever it is. Requests are objects (`who`, `when`, `run`, `expiry_ms`, …) whose keys belong to the
tool and to the part of the coordinator that carries the request out. null means that there is no such request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zkcoord.core.model import Rebalance, is_name
from zkcoord.core.record import (
    DEFAULT_RECORD,
    MAX_PROBES,
    MAX_REBALANCE_RETRIES,
    REQUESTS,
    GroupRecord,
    Policy,
    Request,
    Response,
    StoreMigration,
)
from zkcoord.errors import CorruptError
from zkcoord.tree.adoption import adoption_fields, read_adoption
from zkcoord.tree.codec import INT32_MAX, Document, beside, compact, read_document
from zkcoord.tree.moved import moved_fields, read_moved
from zkcoord.tree.request import document_of, value_of
from zkcoord.tree.snapshot import Node

ON_TIMEOUT = ("evict", "fail")
RETRIES_MAX = 1_000
PROBE_MS_MIN = 1_000  # a probe costs two writes for each member
RARE_KEYS = ("probe_interval_ms", "max_probes", "session_timeout_min_ms", "max_moves")
"""Policy keys that are left out at their default. Add each new key here, so that records without it stay unchanged."""
KEYS = (
    "version",
    "assignor",
    "rebalance",
    "policy",
    "offsets",
    "weights",
    "racks",
    "wish",
    "done",
    "adoption",
    "moved",
)
POLICY_KEYS = ("on_timeout", "max_rebalance_retries", "evict_grace_ms", "initial_delay_ms", *RARE_KEYS)
WHAT = "group record"


def encode_record(record: GroupRecord) -> bytes:
    """The record's znode data: every known key, then the unknown ones.

    >>> print(encode_record(DEFAULT_RECORD).decode()[:61])
    {"version":1,"assignor":null,"rebalance":"cooperative","polic
    """
    values = {key: getattr(record.policy, key) for key in POLICY_KEYS}
    left_out = {key for key in RARE_KEYS if values[key] == getattr(DEFAULT_RECORD.policy, key)}
    policy = {key: value for key, value in values.items() if key not in left_out}
    document = {
        "version": 1,
        "assignor": record.assignor,
        "rebalance": record.rebalance.value,
        "policy": beside(policy, record.policy.unknown),
        "offsets": beside(_offsets(record), record.unknown_offsets),
        "weights": {str(partition): weight for partition, weight in record.weights.items()},
        "wish": {**dict.fromkeys(REQUESTS), **{name: document_of(each) for name, each in record.requests.items()}},
        "done": {name: document_of(each) for name, each in record.responses.items()},
    }
    if record.racks:
        document["racks"] = {str(partition): rack for partition, rack in record.racks.items()}
    if record.adoption is not None:
        document["adoption"] = adoption_fields(record.adoption)
    if record.moved is not None:
        document["moved"] = moved_fields(record.moved)
    return compact(beside(document, record.unknown))


def decode_record(data: bytes) -> GroupRecord:
    """The record in `data`. Empty data is DEFAULT_RECORD, and a missing key has its default. Raises CorruptError for a
    bad value.

    >>> decode_record(b'{"rebalance":"gentle"}')
    Traceback (most recent call last):
    ...
    zkcoord.errors.CorruptError: bad group record '{"rebalance":"gentle"}': rebalance is 'gentle', allowed is \
cooperative or eager
    """
    if not data.strip():
        return DEFAULT_RECORD
    document = read_document(WHAT, data)
    document.version()
    offsets = document.section("offsets")
    weights, racks = document.section("weights"), document.section("racks")
    return GroupRecord(
        assignor=_optional_name(document, "assignor"),
        rebalance=Rebalance(_choice(document, "rebalance", tuple(kind.value for kind in Rebalance))),
        policy=_policy(document.section("policy")),
        store_name=_optional_name(offsets, "store") or "zookeeper",
        store_step=offsets.integer("step", default=0),
        weights=weights.by_partition(lambda key: weights.integer(key, low=1, high=INT32_MAX)),
        racks=racks.by_partition(racks.text),
        requests={name: value_of(Request, each) for name, each in _objects(document.section("wish")).items()},
        responses={name: value_of(Response, each) for name, each in _objects(document.section("done")).items()},
        adoption=read_adoption(document.section("adoption")),
        moved=read_moved(document.section("moved")),
        unknown=document.unknown(*KEYS),
        migration=_migration(offsets),
        unknown_offsets=offsets.unknown("store", "step", "migration"),
    )


def record_in(node: Node) -> GroupRecord | None:
    """The record in a node; None if there is no node. Raises CorruptError that says where the record is, and who must
    act."""
    try:
        return decode_record(node.data) if node.exists else None
    except CorruptError as error:
        raise CorruptError(f"{node.path}: {error}; an operator must mend it") from error


def _policy(section: Document) -> Policy:
    return Policy(
        on_timeout=_choice(section, "on_timeout", ON_TIMEOUT),
        max_rebalance_retries=section.integer("max_rebalance_retries", high=RETRIES_MAX, default=MAX_REBALANCE_RETRIES),
        evict_grace_ms=section.optional_integer("evict_grace_ms", high=INT32_MAX),
        initial_delay_ms=section.integer("initial_delay_ms", high=INT32_MAX, default=0),
        probe_interval_ms=section.optional_integer("probe_interval_ms", low=PROBE_MS_MIN, high=INT32_MAX),
        max_probes=section.integer("max_probes", low=1, high=RETRIES_MAX, default=MAX_PROBES),
        session_timeout_min_ms=section.integer("session_timeout_min_ms", high=INT32_MAX, default=0),
        max_moves=section.optional_integer("max_moves", low=1, high=INT32_MAX),
        unknown=section.unknown(*POLICY_KEYS),
    )


def _choice(section: Document, key: str, allowed: tuple[str, ...]) -> str:
    """One of `allowed`, of which the first is the default."""
    value = section.fields.get(key)
    if value is None:
        return allowed[0]
    if not isinstance(value, str) or value not in allowed:
        raise section.wrong(key, value, " or ".join(allowed))
    return value


def _optional_name(section: Document, key: str) -> str | None:
    value = section.fields.get(key)
    if value is not None and not (isinstance(value, str) and is_name(value)):
        raise section.wrong(key, value, "null or a name of small letters, digits, '.', '_' and '-'")
    return value


def _offsets(record: GroupRecord) -> dict[str, Any]:
    document: dict[str, Any] = {"store": record.store_name, "step": record.store_step}
    return document if record.migration is None else {**document, "migration": document_of(record.migration)}


def _migration(offsets: Document) -> StoreMigration | None:
    value = _object(offsets, "migration", offsets.fields.get("migration"))
    return None if value is None else value_of(StoreMigration, value)


def _objects(section: Document) -> dict[str, Mapping[str, Any]]:
    """The section's objects, without those that are null."""
    found = {key: _object(section, key, value) for key, value in section.fields.items()}
    return {key: value for key, value in found.items() if value is not None}


def _object(section: Document, key: str, value: object) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise section.wrong(key, value, "null or an object")
    return value
