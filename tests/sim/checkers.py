"""One function for each invariant (docs/protocol.md, section 5). A checker looks at an applied transaction or at the
journal.

A checker of transactions is given the facts of one transaction and the field as it was BEFORE it, and yields
complaints. A checker of the journal is given one entry. `watch` attaches all of them to a world, with the checks of a
world at rest after a calm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

from tests.sim.claim_checkers import (
    acknowledgements_set_offsets,
    claims_are_made_as_told,
    claims_fence_offsets,
    starts_name_what_no_other_start_names,
)
from tests.sim.field import LISTS, START, Facts, Field, consumer_of, grants
from tests.sim.places import CHANNEL, place_of
from tests.sim.request_checkers import (
    quarantined_partitions_are_not_granted,
    records_are_peoples,
    requests_are_carried_out,
)
from tests.sim.rest_checkers import at_rest, record_of, state_of
from tests.sim.topic_checkers import incarnations_only_grow, offsets_are_dropped_only_with_their_topic
from tests.sim.world import Entry, World
from tests.sim.zookeeper import Session, Txn
from zkcoord.tree.writes import DeleteNode, SetNode

GRACE_PERMILLE_MIN = 900
"""A grace is measured by a clock of another rate: nine tenths of it must have passed."""

Complaints = Iterator[str]
EVERY: tuple[str, ...] = ()
OPERATOR = "operator"


# -- invariant 1: one reader


def one_reader_by_acknowledgements(facts: Facts, field: Field) -> Complaints:
    """Nobody acknowledges a start while another member that is still registered has not released the partition.

    Partitions that the member does not own at that time, or gives back in the same multi, are not counted: the checker
    of the journal sees whether the member reads them.
    """
    for command in facts.gone_commands:
        if command.option != START or not field.owned_by(facts.session, command.group, command.consumer):
            continue
        emptied = {v.partition for v in facts.owners if v.group == command.group and not v.after}
        for partition in sorted((command.partitions or frozenset()) - emptied):
            key = command.group, partition
            holding = field.holdings.get(key)
            if holding is None or consumer_of(field.owners.get(key, "")) != command.consumer:
                continue
            if holding.consumer != command.consumer and (command.group, holding.consumer) in field.registrations:
                yield f"{command.consumer} starts {partition}, {holding.consumer} has not released it"


def one_reader_by_journal(entry: Entry, field: Field) -> Complaints:
    """A record is read only by the member that holds the partition, and not after the end of its registration and its
    grace."""
    if entry.event != "read":
        return
    holding = field.holdings.get((entry.group, entry.partition))
    if field.stolen_ms(entry.group, entry.partition, entry.client, entry.time_ms) is not None:
        return  # somebody deleted its claim: the member reads until it sees that, or until its lease is over
    if holding is None or holding.client != entry.client:
        yield f"{entry.client} reads {entry.partition}, which {holding.client if holding else 'nobody'} holds"
        return
    gone = field.gone.get((entry.group, holding.consumer))
    if gone is not None:
        grace_ms = gone.timeout_ms if gone.how in ("evicted", "removed") else 0
        if entry.time_ms > gone.time_ms + grace_ms:
            late_ms = entry.time_ms - gone.time_ms
            yield f"{entry.client} reads {entry.partition} {late_ms} ms after its registration ended ({gone.how})"


def granted_only_what_is_available(facts: Facts, field: Field) -> Complaints:
    """An owner is set only where it was empty, or where it named a registration that is gone (of an evicted member:
    after its grace)."""
    if facts.session.process == OPERATOR:
        return
    for value in grants(facts, field):
        former = consumer_of(value.before or "")
        if not former or former == consumer_of(value.after or ""):
            continue
        if (value.group, former) in field.registrations:
            yield f"{value.partition} granted to {value.after} while {former} is registered and owns it"
        gone = field.gone.get((value.group, former))
        if gone is not None and gone.how == "evicted":
            waited_ms = facts.txn.time_ms - gone.time_ms
            if waited_ms * 1000 < _grace_ms(field, value.group, gone.timeout_ms) * GRACE_PERMILLE_MIN:
                yield f"{value.partition} of the evicted {former} granted after {waited_ms} ms"


def _grace_ms(field: Field, group: str, timeout_ms: int) -> int:
    """The grace that the group's record asks for, at least the evicted member's own session timeout."""
    return max(timeout_ms, int(record_of(field, group).get("policy", {}).get("evict_grace_ms") or 0))


# -- invariant 2: offsets


def offsets_move_forward_over_what_was_processed(facts: Facts, field: Field) -> Complaints:
    """Within an incarnation of a topic no offset goes back, and none goes beyond the records that the group processed
    without a gap."""
    if facts.session.process == OPERATOR:
        return
    for value in facts.offsets:
        if not value.after or not value.after.strip().isdigit():
            continue
        key, new = (value.group, value.partition), int(value.after)
        if not value.before:
            if key in field.resolved and new not in field.resolved[key]:
                yield f"first offset {new} of {value.partition} is none that the reset policy gave"
            continue
        goes_back = value.before.strip().isdigit() and new < int(value.before)
        if goes_back and key not in field.may_go_back and new not in field.strangers.get(key, ()):
            yield f"offset of {value.partition} went back from {value.before} to {new}"
        if new > field.covered.get(key, new) and new not in field.left_behind.get(key, ()):
            yield f"offset {new} of {value.partition} is beyond what was processed ({field.covered[key]})"


def no_record_is_skipped(entry: Entry, field: Field) -> Complaints:
    """At least once: reading never starts beyond the records that the group has processed without a gap."""
    if entry.event != "read":
        return
    covered = field.covered.get((entry.group, entry.partition))
    if covered is None and (entry.group, entry.partition) in field.removed:
        return  # an operator removed the offset of a running reader, which notices that at its next commit
    if covered is None:
        yield f"{entry.client} reads {entry.partition} before its first offset is written"
    elif entry.start > covered:
        yield f"{entry.client} reads {entry.partition} from {entry.start}: records from {covered} are skipped"


# -- invariant 3: one coordinator


def only_the_newest_epoch_coordinates(facts: Facts, field: Field) -> Complaints:
    """Only the session that raised the epoch last makes a coordinator's writes, and it checks the version of the
    epoch's node."""
    written = next(_coordinators_work(facts, field), None)
    if written is None or facts.session.process == OPERATOR:
        return
    if not facts.checks("/zkcoord/epoch"):
        yield f"{facts.session.client} wrote without a check of the epoch: {written}"
    if not facts.epoch_raised and field.epoch_session is not facts.session:
        newest = field.epoch_session.client if field.epoch_session else "nobody"
        yield f"{facts.session.client} wrote {written}, but the newest epoch is {newest}'s"


def coordinator_checks_record_and_state(facts: Facts, field: Field) -> Complaints:
    """Every transaction of a coordinator for a group checks (or writes) the versions of the group's record and
    state."""
    if facts.session.process == OPERATOR:
        return
    rewritten = {tuple(c[:3]) for c in facts.gone_commands}  # by the consumer that refuses the command
    sent = {c.group for c in facts.made_commands if tuple(c[:3]) not in rewritten}
    groups = sent | {v.group for v in grants(facts, field)}
    made = {change.path for change in facts.txn.changes if change.before is None}
    for group in sorted(groups):
        for path in (f"/zkcoord/groups/{group}", f"/zkcoord/groups/{group}/state"):
            if path not in made and not facts.checks(path):
                yield f"{facts.session.client} wrote to group {group} without a check of {path}"


def _coordinators_work(facts: Facts, field: Field) -> Iterator[str]:
    """Those parts of a transaction that only a coordinator may write."""
    refused = {tuple(c[:3]) for c in facts.gone_commands}  # a consumer may rewrite a command that it refuses
    for command in facts.made_commands:
        if tuple(command[:3]) not in refused:
            yield f"command {command.sequence} for {command.consumer}"
    for value in grants(facts, field):
        yield f"owner of {value.partition}"
    for group, _, _ in facts.states:
        yield f"state of {group}"
    for _, consumer in facts.evicted_marks:
        yield f"eviction of {consumer}"
    for _, consumer in facts.channels_gone:
        yield f"channel of {consumer} deleted"
    for _, topic, _, _ in facts.marks:
        yield f"mark of {topic}"
    for value in facts.offsets:
        if value.after is None:
            yield f"offset of {value.partition} removed"
    for key in facts.unregistered if facts.txn.kind == "multi" else ():
        if not field.owned_by(facts.session, *key):
            yield f"registration of {key[1]} deleted"


# -- invariants 4 and 5: whose commands, whose owners


def consumers_touch_only_their_own(facts: Facts, field: Field) -> Complaints:
    """A command is deleted by its receiver, or by the coordinator if the receiver is gone or refused the command. The
    same holds for owners."""
    session = facts.session
    if session.process == OPERATOR or facts.txn.kind != "multi":
        return
    rewritten = {tuple(c[:3]) for c in facts.made_commands}
    fences = set()
    for command in facts.gone_commands:
        key = command.group, command.consumer
        if field.owned_by(session, *key):
            fences.add(key)
        elif _obeys_late(field, key, session):
            continue
        elif session is not field.epoch_session:
            yield f"{session.client} deleted a command of {command.consumer}"
        elif key in field.registrations and command.understood and tuple(command[:3]) not in rewritten:
            yield f"the coordinator {session.client} withdrew a command of {command.consumer}"
    for value in facts.owners:
        if value.after or not value.before:
            continue
        key = value.group, consumer_of(value.before)
        if field.owned_by(session, *key):
            fences.add(key)
        elif session is not field.epoch_session:
            yield f"{session.client} released {value.partition}, which {value.before} owns"
        elif key in field.registrations and not _refused_start(facts, key) and not value.before.startswith("!"):
            yield f"the coordinator {session.client} took {value.partition} from {value.before}"
    for group, consumer in sorted(fences):
        if "coordination" not in field.registrations[group, consumer].text:
            continue  # a member that knows only the draft has no fence
        if not facts.checks_exists(field.registration(group, consumer)):
            yield f"{session.client} wrote as {consumer} without a check of its registration"


def _obeys_late(field: Field, key: tuple[str, str], session: Session) -> bool:
    """True of a session whose own registration is gone and that has no fence, since it knows only the draft."""
    gone = field.gone.get(key)
    return gone is not None and gone.session is session and not gone.fenced


def _refused_start(facts: Facts, key: tuple[str, str]) -> bool:
    return any((c.group, c.consumer) == key and not c.understood for c in facts.gone_commands)


def offsets_are_fenced(facts: Facts, field: Field) -> Complaints:
    """A member that writes an offset checks its own registration in the same multi. The coordinator may remove a
    topic's offsets."""
    session = facts.session
    if session.process == OPERATOR or session is field.epoch_session:
        return
    groups = {v.group for v in facts.offsets}
    for group in sorted(groups):
        own = [c for (g, c), r in field.registrations.items() if g == group and r.session is session]
        if not any(facts.checks_exists(field.registration(group, consumer)) for consumer in own):
            yield f"{session.client} wrote offsets of {group} without a check of its registration"


def statuses_are_fenced(facts: Facts, field: Field) -> Complaints:
    """A member that writes its status checks its own registration, or creates it, in the same multi."""
    session = facts.session
    if session.process == OPERATOR:
        return
    joined = {(group, consumer) for group, consumer, _ in facts.registered}
    for write in facts.txn.writes:
        place = place_of(write.path) if type(write) is SetNode else None
        if place is None or place.kind != CHANNEL or (place.group, place.name) in joined:
            continue
        own = field.owned_by(session, place.group, place.name)
        if not own or not facts.checks_exists(field.registration(place.group, place.name)):
            yield f"{session.client} wrote the status of {place.name} without a check of its registration"


def one_command_per_partition(facts: Facts, field: Field) -> Complaints:
    """At most one command is outstanding for a consumer and partition."""
    gone = {tuple(c[:3]) for c in facts.gone_commands}
    for command in facts.made_commands:
        standing = field.commands.get((command.group, command.consumer), {}).values()
        others = [c for c in standing if tuple(c[:3]) not in gone]
        others += [c for c in facts.made_commands if c.consumer == command.consumer and c is not command]
        for other in others:
            if other.sequence != command.sequence and command.overlaps(other):
                yield f"{command.consumer} has {other.option} {other.sequence} outstanding, was sent {command.option}"


_REPLACING = (SetNode, DeleteNode)


def nothing_is_written_blindly(facts: Facts, field: Field) -> Complaints:
    """Every set and delete carries the version that it was decided from. No program has an exception (F26)."""
    if facts.session.process == OPERATOR:
        return
    for write in facts.txn.writes:
        if type(write) in _REPLACING and write.version < 0:  # type: ignore[union-attr]
            yield f"{facts.session.client} wrote {write.path} whatever stood there"


# -- generations


def generations_grow_with_the_target(facts: Facts, field: Field) -> Complaints:
    """The generation never falls. It rises if and only if the target changes."""
    for group, old, new in facts.states:
        if not old or not new:
            continue
        before, after = int(old.get("generation", 0)), int(new.get("generation", 0))
        changed = old.get("target") != new.get("target")
        if after < before:
            yield f"generation of {group} fell from {before} to {after}"
        elif after > before and not changed:
            yield f"generation of {group} rose to {after} without another target"
        elif changed and after == before:
            yield f"another target of {group} at the same generation {after}"


# -- eager groups


def eager_groups_stop_before_they_start(facts: Facts, field: Field) -> Complaints:
    """Nothing is granted while a group is stopping. An eager group stops stopping only when no member owns anything, or
    when a request (hold or pause) forbids stops."""
    for value in grants(facts, field):
        if state_of(field, value.group).get("stopping"):
            yield f"{value.partition} granted to {value.after} while {value.group} is stopping"
    for group, old, new in facts.states:
        record = record_of(field, group)
        if not old.get("stopping") or new.get("stopping") or record.get("rebalance") != "eager":
            continue
        requests = record.get("wish") or {}
        if requests.get("hold") or requests.get("pause"):
            continue
        for (owned_group, partition), thread in sorted(field.owners.items()):
            if owned_group == group and (group, consumer_of(thread)) in field.registrations:
                yield f"{group} stops no more, but {thread} owns {partition}"


Checker = Callable[[Facts, Field], Complaints]
TRANSACTION_CHECKERS: dict[Checker, tuple[str, ...]] = {
    one_reader_by_acknowledgements: ("gone_commands",),
    granted_only_what_is_available: ("made_commands", "owners"),
    offsets_move_forward_over_what_was_processed: ("offsets",),
    only_the_newest_epoch_coordinates: EVERY,
    coordinator_checks_record_and_state: ("made_commands", "owners"),
    consumers_touch_only_their_own: ("gone_commands", "owners"),
    offsets_are_fenced: ("offsets",),
    statuses_are_fenced: EVERY,
    one_command_per_partition: ("made_commands",),
    nothing_is_written_blindly: EVERY,
    generations_grow_with_the_target: ("states",),
    offsets_are_dropped_only_with_their_topic: ("offsets",),
    incarnations_only_grow: ("marks",),
    eager_groups_stop_before_they_start: ("made_commands", "owners", "states"),
    claims_are_made_as_told: ("owners",),
    claims_fence_offsets: ("owners", "offsets"),
    starts_name_what_no_other_start_names: ("made_commands",),
    acknowledgements_set_offsets: ("gone_commands",),
    records_are_peoples: ("records",),
    requests_are_carried_out: ("made_commands",),
    quarantined_partitions_are_not_granted: ("made_commands", "owners"),
}
"""Each checker with the lists of facts that it looks at. It is asked only when one of them is not empty."""


@lru_cache
def asked(held: tuple[bool, ...]) -> tuple[Checker, ...]:
    """Return the checkers that look at a transaction with facts in these of `LISTS`."""
    there = {name for name, is_there in zip(LISTS, held, strict=True) if is_there}
    return tuple(check for check, needs in TRANSACTION_CHECKERS.items() if not needs or there.intersection(needs))


JOURNAL_CHECKERS: tuple[Callable[[Entry, Field], Complaints], ...] = (one_reader_by_journal, no_record_is_skipped)


def watch(world: World) -> Field:
    """Check every transaction and every journal entry of this world from now on; check the rest after a calm."""
    field = Field(world.ensemble, claims=world.layout.ownership.claimed)

    def applied(txn: Txn) -> None:
        facts = field.read(txn)
        for check in asked(facts.held()):
            for complaint in check(facts, field):
                world.fail(f"{check.__name__}: {complaint}")
        field.take(facts)

    def journaled(entry: Entry) -> None:
        for check in JOURNAL_CHECKERS:
            for complaint in check(entry, field):
                world.fail(f"{check.__name__}: {complaint}")
        key = entry.group, entry.partition
        if entry.event == "read" and key in field.covered:
            field.covered[key] = max(field.covered[key], entry.end)
        elif entry.event == "reset" and key not in field.offsets:
            field.resolved.setdefault(key, set()).add(entry.start)

    world.ensemble.on_applied.append(applied)
    world.on_journal.append(journaled)
    world.rest_checks.append(lambda: list(at_rest(world, field)))
    return field
