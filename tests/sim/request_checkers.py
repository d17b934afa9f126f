"""Checkers of people's decisions: only people change their part of the record, and a request counts as soon as it is
written.

Every transaction of a coordinator checks the record's version, so an applied transaction agrees with the present
record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.sim.field import START, STOP, Facts, Field, grants
from tests.sim.rest_checkers import record_of, state_of

OPERATOR = "operator"
ANSWERED = ("wish", "done")
DEFAULTS = {"max_probes": 3}
"""What a key that is left out says, where that is not nothing."""


def records_are_peoples(facts: Facts, field: Field) -> Iterator[str]:
    """A coordinator changes only its answers in a record. A deletion removes everything from the record, except the
    store of offsets that are kept."""
    if facts.session.process == OPERATOR:
        return
    for group, old, new in facts.records:
        if not old or not new or _deleted(old, new):
            continue
        for key in sorted(old.keys() - set(ANSWERED)):
            if not _keeps(old[key], new.get(key)):
                yield f"{facts.session.client} changed {key} in the record of {group}: {old[key]} to {new.get(key)}"
        done = new.get("done") or {}
        for name, request in sorted((old.get("wish") or {}).items()):
            kept = (new.get("wish") or {}).get(name)
            if request and kept != request and (kept or (done.get(name) or {}).get("run") != request.get("run")):
                yield f"{facts.session.client} took back the request {name} of {group} and answered {done.get(name)}"


def _deleted(old: dict[str, Any], new: dict[str, Any]) -> bool:
    """True when `new` is what a deletion leaves of `old`, and a deletion was in progress."""
    deleting = ((old.get("done") or {}).get("delete") or {}).get("state") == "deleting"
    offsets = {key: value for key, value in (old.get("offsets") or {}).items() if key in ("store", "step")}
    return deleting and new.get("offsets") == offsets and not any((new.get("wish") or {}).values())


def _keeps(old: Any, new: Any) -> bool:
    """True when `new` has the value `old`; a default value may be missing on either side."""
    if isinstance(old, dict) and isinstance(new, dict):
        return all(_keeps(value, new.get(key, DEFAULTS.get(key))) for key, value in old.items())
    return bool(old == new or (new is None and not old))


def requests_are_carried_out(facts: Facts, field: Field) -> Iterator[str]:
    """Nothing is started in a group that is paused or being deleted, nothing is stopped in one that is held."""
    rewritten = {tuple(command[:3]) for command in facts.gone_commands}  # by the consumer that refuses the command
    for command in facts.made_commands:
        if tuple(command[:3]) in rewritten or facts.session.process == OPERATOR:
            continue
        record = record_of(field, command.group)
        requests, done = record.get("wish") or {}, record.get("done") or {}
        delete, answer = requests.get("delete") or {}, done.get("delete") or {}
        deleting = delete and answer.get("state") == "deleting" and answer.get("run") == delete.get("run")
        still = bool(requests.get("pause") or requests.get("reset") or deleting)
        if command.option == START and still:
            yield f"{command.consumer} was sent a start, {command.group} is paused, reset or being deleted"
        if command.option == STOP and requests.get("hold") and not still:
            yield f"{command.consumer} was sent a stop, {command.group} is held"


def quarantined_partitions_are_not_granted(facts: Facts, field: Field) -> Iterator[str]:
    """A partition that the state names as quarantined is granted to nobody."""
    for value in grants(facts, field):
        if str(value.partition) in (state_of(field, value.group).get("quarantined") or {}):
            yield f"{value.partition} is in quarantine, and was granted to {value.after}"
