"""The simulator can fail: if a rule of a coordinator is taken away, one of a stated number of seeds fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import pytest

from tests.sim import test_failures_commands as commands
from tests.sim import test_failures_coordinators as coordinators
from tests.sim import test_failures_sessions as sessions
from tests.sim import test_failures_stability as stability
from tests.sim import test_failures_timeouts as timeouts
from tests.sim import test_replay as replays
from tests.sim.mutations import Case, Patch, group_storm, must_be_missed
from tests.sim.scenarios import announcing_storm, storm_fingerprint
from tests.sim.sweep import fingerprints
from tests.sim.test_edited import edited
from tests.sim.test_mended import test_f344_a_paused_group_is_left_alone_until_record_and_state_can_be_read as mended
from zkcoord.core.ack_timeouts import AckTimeouts
from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.decisions import SetState
from zkcoord.core.holders import Holders
from zkcoord.core.model import TopicPartition
from zkcoord.core.replay import Replays
from zkcoord.core.view import Channel
from zkcoord.serving import role as coordinating
from zkcoord.serving.channels import Channels
from zkcoord.serving.election import Election
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.shell.tracker import Tracker
from zkcoord.tree import plan as planning
from zkcoord.tree.paths import EPOCH
from zkcoord.tree.view import _Folder
from zkcoord.tree.writes import ANY_VERSION, CheckNode, DeleteNode, SetNode, Transaction, Write

# -- what the coordinator sends


def _planned(patch: Patch, change: Callable[[Write], Write | None]) -> None:
    """Change each write of the coordinator; None drops the write."""
    original = planning._Planner.transactions

    def transactions(self: Any, decision: Any) -> Iterator[Transaction]:
        for transaction in original(self, decision):
            writes = tuple(new for write in transaction.writes if (new := change(write)) is not None)
            yield replace(transaction, writes=writes)

    patch.setattr(planning._Planner, "transactions", transactions)


def no_check_of_the_epoch(patch: Patch) -> None:
    """A deposed coordinator is not refused (rule 5)."""
    _planned(patch, lambda w: None if isinstance(w, CheckNode) and w.path == EPOCH else w)


def no_check_of_the_state(patch: Patch) -> None:
    """Plans do not follow the raise of their generation (rule 5)."""
    _planned(patch, lambda w: None if isinstance(w, CheckNode) and w.path.endswith("/state") else w)


def owners_without_a_version(patch: Patch) -> None:
    """An owner is set whatever stands there (rule 2)."""
    _planned(patch, lambda w: w._replace(version=ANY_VERSION) if isinstance(w, SetNode) and "/owners/" in w.path else w)


def deletes_without_a_version(patch: Patch) -> None:
    """A channel or command is deleted whatever it says."""
    _planned(patch, lambda w: w._replace(version=ANY_VERSION) if isinstance(w, DeleteNode) else w)


def sends_beside_a_standing_command(patch: Patch) -> None:
    """A command for a partition does not wait for the one that stands (rule 4)."""
    patch.setattr(Channel, "names", lambda self, partition: False)


def sends_again_after_unknown(patch: Patch) -> None:
    """What has an unknown outcome is sent again as it is: what a client's own retry would do (F18)."""
    commit, take, link = Loop.commit, Loop._take_from_store, Loop._take_link
    sent: dict[Any, tuple[Any, ...]] = {}
    unknown: dict[int, list[tuple[Any, ...]]] = {}

    def committed(self: Loop, *args: Any) -> None:
        commit(self, *args)
        sent[id(self), self._token] = args

    def taken(self: Loop, role: Any, session: Any, item: Any, now_ms: int) -> None:
        take(self, role, session, item, now_ms)
        if isinstance(item, CommitDone) and item.outcome is Outcome.UNKNOWN:
            args = sent[id(self), item.token]
            if "the target has them elsewhere" in args[0].why:
                unknown.setdefault(id(self), []).append(args)

    def linked(self: Loop, role: Any, session: Any, change: Any, now_ms: int) -> None:
        link(self, role, session, change, now_ms)
        if session.connected:
            for args in unknown.pop(id(self), []):
                self.commit(*args)

    patch.setattr(Loop, "commit", committed)
    patch.setattr(Loop, "_take_from_store", taken)
    patch.setattr(Loop, "_take_link", linked)


def no_sync_after_a_break(patch: Patch) -> None:
    """What is read after a broken link or an unknown outcome may be older than it."""
    patch.setattr(Loop, "_gate", lambda self, session, now_ms: session.tracker.touch_all())


def trusts_a_node_with_its_id(patch: Patch) -> None:
    """A coordinator's node with its own id is taken for its own (F2)."""

    def serves(self: Election, epoch: int | None = None) -> bool:
        node = self._node(self.layout.coordinator)
        return node is not None and node.exists and node.data == str(self.candidate_id).encode()

    patch.setattr(Election, "serves", serves)


# -- when the coordinator decides


def nobodys_patience_ends(patch: Patch) -> None:
    """No time-out wakes the coordinator (F12)."""
    patch.setattr(AckTimeouts, "wake_at_ms", lambda self, view, now_ms: None)


def no_grace(patch: Patch) -> None:
    """What an evicted consumer owned is granted at once."""
    patch.setattr(AckTimeouts, "in_grace", lambda self, view, consumer_id, now_ms: False)


def no_backoff(patch: Patch) -> None:
    """A refused start is tried again at once."""
    patch.setattr(AckTimeouts, "start_backs_off", lambda self, consumer_id, partition, now_ms: False)


def purges_who_is_joining(patch: Patch) -> None:
    """A channel that was never registered with is not left alone for a minute (F46)."""
    patch.setattr(AckTimeouts, "abandoned", lambda self, channel, now_ms: True)


def no_minute_is_waited_for(patch: Patch) -> None:
    """A channel that was never registered with stays for ever."""
    patch.setattr(AckTimeouts, "abandoned", lambda self, channel, now_ms: False)


def a_restless_assignor(patch: Patch) -> None:
    """Who is asked again answers otherwise (F23)."""
    turns, original = count(), ASSIGNORS["sticky"]

    def restless(given: AssignorInput, *, work_max: int = 0) -> dict[TopicPartition, str]:
        answer = dict(original(replace(given, owned={})))
        threads, turn = sorted(set(answer.values())), next(turns)
        return {p: threads[(threads.index(thread) + turn) % len(threads)] for p, thread in answer.items()}

    patch.setitem(ASSIGNORS, "sticky", restless)


def a_digest_of_the_order(patch: Patch) -> None:
    """The same target asked for again is another one (F24)."""
    numbers = count()
    patch.setattr(coordinating, "digest", lambda assignment: str(next(numbers)))


def looks_at_no_owner_again(patch: Patch) -> None:
    """An acknowledgement is seen, and the owner that it emptied is not read (rule 8)."""
    patch.setattr(Channels, "_touch_owners", lambda self, partitions: None)
    patch.setattr(Tracker, "read_beside", lambda self, path, kind, beside: None)


# -- announced ranges


def no_range_is_handed_on(patch: Patch) -> None:
    """A grant leaves out what was announced."""
    patch.setattr(Replays, "granted", lambda self, receiver, partition: None)


def purges_what_is_announced(patch: Patch) -> None:
    """A dead channel goes before its announced ranges are handed on."""
    patch.setattr(Replays, "need", lambda self, channel: False)


def takes_an_edited_owner_at_its_word(patch: Patch) -> None:
    """What is free by its owner is granted, though somebody reads it (F98)."""
    patch.setattr(Holders, "seen", lambda self, *view: self)


def serves_what_is_half_read(patch: Patch) -> None:
    """A group whose record nobody can parse is served by the defaults, if its state can be read (F344)."""
    original = _Folder._unreadable

    def unreadable(self: Any, what: str, error: str | None) -> None:
        original(self, what, error)
        if error is None:
            self._unknown = {}

    patch.setattr(_Folder, "_unreadable", unreadable)


CASES = (
    Case(no_check_of_the_epoch, coordinators.test_f01_two_coordinators_at_once_only_the_newest_epoch_writes),
    Case(no_check_of_the_state, group_storm, 5),
    Case(owners_without_a_version, group_storm, 5),
    Case(deletes_without_a_version, sessions.test_f46_a_purge_that_was_decided_before_its_consumer_joined_is_refused),
    Case(
        sends_beside_a_standing_command,
        commands.test_f08_a_stale_command_is_obeyed_and_then_its_stop_though_the_target_changed,
    ),
    Case(
        sends_again_after_unknown,
        partial(
            commands.test_f18_a_command_whose_reply_was_lost_is_sent_exactly_once,
            option=commands.STOP,
            when="reply_lost",
        ),
    ),
    Case(no_sync_after_a_break, commands.test_f18_after_a_lost_reply_a_server_that_lags_behind_is_not_believed),
    Case(
        trusts_a_node_with_its_id,
        coordinators.test_f02_a_coordinator_does_not_trust_the_node_of_its_own_expired_session,
    ),
    Case(
        nobodys_patience_ends,
        timeouts.test_f12_a_time_out_with_no_change_at_all_is_retried_and_then_ends_in_an_eviction,
    ),
    Case(no_grace, timeouts.test_f47_a_failover_within_an_evictions_grace_waits_the_whole_grace_again),
    Case(no_backoff, timeouts.test_a_start_that_is_refused_is_tried_again_with_backoff_and_does_not_spin),
    Case(purges_who_is_joining, sessions.test_f46_a_channel_is_left_alone_for_a_minute_while_its_consumer_is_joining),
    Case(
        no_minute_is_waited_for,
        sessions.test_f46_a_consumer_whose_channel_was_purged_while_it_was_joining_makes_it_again,
    ),
    Case(
        a_restless_assignor,
        partial(
            stability.test_f23_nothing_moves_and_no_command_is_sent_when_nothing_changed,
            "failovers",
            "sticky",
        ),
    ),
    Case(a_digest_of_the_order, stability.test_f24_the_generation_rises_once_for_each_cause),
    Case(
        looks_at_no_owner_again, commands.test_f08_a_stale_command_is_obeyed_and_then_its_stop_though_the_target_changed
    ),
    Case(no_range_is_handed_on, announcing_storm, 80, first=3),
    Case(takes_an_edited_owner_at_its_word, edited.__wrapped__, 10),
    Case(serves_what_is_half_read, partial(mended, places=("state", "record"))),
    Case(purges_what_is_announced, replays.test_the_last_members_range_waits_for_the_next_member),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)


def unsorted_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """A storm whose decisions come in the order of a set of texts: the same within a process, another one in the next
    process."""
    original = coordinating.plan

    def plan(decisions: Any, *rest: Any) -> list[Transaction]:
        raised = [d for d in decisions if isinstance(d, SetState)]
        others = {str(d): d for d in decisions if d not in raised}
        return original([*raised, *(others[text] for text in set(others))], *rest)

    coordinating.plan = plan
    try:
        return storm_fingerprint(seed)
    finally:
        coordinating.plan = original


def test_a_set_that_is_not_sorted_is_missed_by_the_hash_seeds() -> None:
    by_hash_seed = fingerprints("tests.sim.test_mutations_coordinator:unsorted_fingerprint", range(3), (0, 1))
    assert by_hash_seed[0] != by_hash_seed[1]
