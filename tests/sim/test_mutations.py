"""The simulator can fail: each rule of the product, taken away, is missed within a stated number of seeds.

A mutation patches one place of the product. It is caught when a storm, or the script of its failure case, breaks a
checker or an assertion, or does not come to rest; an exception of the mutated product counts, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from tests.sim import test_failures_commands as commands
from tests.sim import test_failures_coordinators as coordinators
from tests.sim import test_failures_input as bad_input
from tests.sim import test_failures_sessions as sessions
from tests.sim import test_failures_stability as stability
from tests.sim import test_failures_timeouts as timeouts
from tests.sim import test_replay as replays
from tests.sim.garbage import collect_between
from tests.sim.scenarios import announcing_storm, storm_fingerprint
from tests.sim.script import Script
from tests.sim.sweep import fingerprints
from zkcoord.core.assignors import ASSIGNORS, AssignorInput
from zkcoord.core.decisions import FailGroup, RaiseGeneration, SetStopping
from zkcoord.core.model import TopicPartition
from zkcoord.core.patience import Patience
from zkcoord.core.replay import Replays
from zkcoord.core.view import Channel
from zkcoord.shell import coordinating
from zkcoord.shell.channels import Channels
from zkcoord.shell.desk import Desk
from zkcoord.shell.holdings import Holdings
from zkcoord.shell.lease import Lease
from zkcoord.shell.loop import Loop
from zkcoord.shell.membership import MembershipRole
from zkcoord.shell.ports import CommitDone, Outcome
from zkcoord.shell.standing import Standing
from zkcoord.shell.tracker import Tracker
from zkcoord.tree import member
from zkcoord.tree import plan as planning
from zkcoord.tree.paths import EPOCH
from zkcoord.tree.writes import ANY_VERSION, CheckNode, DeleteNode, SetNode, Transaction, Write

STORM_STEPS = 2_500
Patch = pytest.MonkeyPatch
Play = Callable[[int], object]


def storm(seed: int) -> None:
    """A group that has settled, a storm, the calm."""
    script = Script(seed, None, topics={"t": 8, "u": 3})
    script.settle()
    script.world.storm(STORM_STEPS)
    script.calm()


# -- what the coordinator sends


def _planned(patch: Patch, change: Callable[[Write], Write | None]) -> None:
    """Change every write of the coordinator; None drops it."""
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

    def leader(self: Standing) -> bool:
        node = self._node(self.layout.coordinator)
        return node is not None and node.exists and node.data == str(self.candidate_id).encode()

    patch.setattr(Standing, "leader", leader)


# -- when the coordinator decides


def nobodys_patience_ends(patch: Patch) -> None:
    """No time-out wakes the coordinator (F12)."""
    patch.setattr(Patience, "wake_at_ms", lambda self, view, now_ms: None)


def no_grace(patch: Patch) -> None:
    """What an evicted consumer owned is granted at once."""
    patch.setattr(Patience, "in_grace", lambda self, view, consumer_id, now_ms: False)


def no_backoff(patch: Patch) -> None:
    """A refused start is tried again at once."""
    patch.setattr(Patience, "held_back", lambda self, consumer_id, partition, now_ms: False)


def purges_who_is_joining(patch: Patch) -> None:
    """A channel that was never registered with is not left alone for a minute (F46)."""
    patch.setattr(Patience, "abandoned", lambda self, consumer_id, now_ms: True)


def no_minute_is_waited_for(patch: Patch) -> None:
    """A channel that was never registered with stays for ever."""
    patch.setattr(Patience, "abandoned", lambda self, consumer_id, now_ms: False)


def a_restless_assignor(patch: Patch) -> None:
    """Who is asked again answers otherwise (F23)."""
    turns, original = count(), ASSIGNORS["sticky"]

    def restless(given: AssignorInput) -> dict[TopicPartition, str]:
        answer = dict(original(replace(given, owned={})))
        threads, turn = sorted(set(answer.values())), next(turns)
        return {p: threads[(threads.index(thread) + turn) % len(threads)] for p, thread in answer.items()}

    patch.setitem(ASSIGNORS, "sticky", restless)


def a_digest_of_the_order(patch: Patch) -> None:
    """The same target asked for again is another one (F24)."""
    numbers = count()
    patch.setattr(coordinating, "digest", lambda target: str(next(numbers)))


def looks_at_no_owner_again(patch: Patch) -> None:
    """An acknowledgement is seen, and the owner that it emptied is not read (rule 8)."""
    patch.setattr(Channels, "_touch_owners", lambda self, partitions: None)
    patch.setattr(Tracker, "read_beside", lambda self, path, kind, beside: None)


# -- consumers and their sessions


def no_check_of_ids(patch: Patch) -> None:
    """A consumer's writes are not fenced by its registration (rule 1)."""
    patch.setattr(member.MemberPaths, "check", lambda self: CheckNode("/zkcoord", 0))


def one_name_for_ever(patch: Patch) -> None:
    """A process registers under the same name each time (rule 1)."""
    original = MembershipRole.__init__

    def init(self: MembershipRole, loop: Any, settings: Any, *rest: Any) -> None:
        name = settings.new_id().split("-")[0] + "-1-00000000"
        original(self, loop, replace(settings, new_id=lambda: name), *rest)

    patch.setattr(MembershipRole, "__init__", init)


def a_lease_for_ever(patch: Patch) -> None:
    """Reading does not end with the lease (rule 7)."""
    patch.setattr(Lease, "holds", lambda self, now_ms: True)


def a_lease_from_the_answer_on(patch: Patch) -> None:
    """The lease counts from an answer's arrival, not from its question's sending (rule 7)."""
    original = MembershipRole.synced
    patch.setattr(MembershipRole, "synced", lambda self, sent_ms, now_ms: original(self, now_ms + 6_000, now_ms))


def calls_are_counted_anew(patch: Patch) -> None:
    """A late answer has the number of a call of the new session (F13)."""
    original = MembershipRole._forget

    def forget(self: MembershipRole) -> None:
        original(self)
        self._calls._tokens = count(1)

    patch.setattr(MembershipRole, "_forget", forget)


def watches_are_taken_for_kept(patch: Patch) -> None:
    """After a broken link nothing is read again (F5)."""
    patch.setattr(Tracker, "touch_all", lambda self: None)


def nobody_watches_his_own_nodes(patch: Patch) -> None:
    """The own registration and channel may go unnoticed."""
    patch.setattr(Desk, "registration_gone", property(lambda self: False))


def deletes_what_it_does_not_understand(patch: Patch) -> None:
    """A refused command is deleted, which acknowledges it."""

    def refuse(paths: Any, command: Any, *rest: Any, **more: Any) -> Transaction:
        return Transaction(writes=(paths.check(), DeleteNode(command.path, command.stat.version)), why="refuse")

    patch.setattr(member, "refuse", refuse)


# -- announced ranges


def no_range_is_handed_on(patch: Patch) -> None:
    """A grant leaves out what was announced."""
    patch.setattr(Replays, "granted", lambda self, receiver, partition: None)


def purges_what_is_announced(patch: Patch) -> None:
    """A dead channel goes before its announced ranges are handed on."""
    patch.setattr(Replays, "need", lambda self, channel: False)


def takes_nothing_over(patch: Patch) -> None:
    """A receiver does not write into its status what it was handed (F49)."""
    patch.setattr(Holdings, "standing", lambda self, held, batch: {p: r for p, r in batch.items() if p in self.held})


class Case(NamedTuple):
    """A mutation is missed by `play` within so many seeds."""

    mutate: Callable[[Patch], None]
    play: Play
    seeds: int = 1


def must_be_missed(mutate: Callable[[Patch], None], play: Play, seeds: int) -> None:
    """Fail unless a play of one of the first seeds breaks under the mutation."""
    for seed in range(seeds):
        with pytest.MonkeyPatch.context() as patch:
            mutate(patch)
            try:
                play(seed)
            except Exception:  # a checker, an assertion of the script, or the mutated product itself
                return
        collect_between()
    pytest.fail(f"not missed within {seeds} seeds: {mutate.__doc__}")


CASES = (
    Case(no_check_of_the_epoch, coordinators.test_f01_two_coordinators_at_once_only_the_newest_epoch_writes),
    Case(no_check_of_the_state, storm, 5),
    Case(owners_without_a_version, storm, 5),
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
    Case(no_check_of_ids, storm, 10),
    Case(no_range_is_handed_on, announcing_storm, 30),
    Case(purges_what_is_announced, replays.test_what_the_last_member_announced_waits_for_whoever_comes),
    Case(takes_nothing_over, announcing_storm, 50),
    Case(one_name_for_ever, storm, 5),
    Case(
        a_lease_for_ever,
        partial(sessions.test_f15_a_consumer_stops_reading_before_its_session_can_expire, "black hole"),
    ),
    Case(
        a_lease_from_the_answer_on,
        partial(sessions.test_f15_a_consumer_stops_reading_before_its_session_can_expire, "black hole"),
    ),
    Case(calls_are_counted_anew, sessions.test_f13_a_callback_of_an_earlier_session_is_not_taken_for_the_present_one),
    Case(
        watches_are_taken_for_kept,
        sessions.test_f05_a_command_written_while_its_watch_was_lost_in_a_long_outage_is_read,
    ),
    Case(
        nobody_watches_his_own_nodes,
        sessions.test_f21_a_consumer_whose_own_channel_is_deleted_takes_its_session_for_ended,
    ),
    Case(
        deletes_what_it_does_not_understand,
        partial(bad_input.test_f48_a_command_from_the_future_is_refused_removed_and_frees_what_it_named, "version"),
    ),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.mutate.__name__)
def test_a_rule_that_is_taken_away_is_missed(case: Case) -> None:
    must_be_missed(*case)


def unsorted_fingerprint(seed: int) -> tuple[int, int, int, int]:
    """A storm with decisions in the order of a set of texts: the same within a process, another in the next."""
    original = coordinating.plan

    def plan(decisions: Any, *rest: Any) -> list[Transaction]:
        raised = [
            d for d in decisions if isinstance(d, RaiseGeneration | SetStopping | FailGroup)
        ]  # what sets the state
        others = {str(d): d for d in decisions if d not in raised}
        return original([*raised, *(others[text] for text in set(others))], *rest)

    coordinating.plan = plan
    try:
        return storm_fingerprint(seed)
    finally:
        coordinating.plan = original


def test_a_set_that_is_not_sorted_is_missed_by_the_hash_seeds() -> None:
    by_hash_seed = fingerprints("tests.sim.test_mutations:unsorted_fingerprint", range(3), (0, 1))
    assert by_hash_seed[0] != by_hash_seed[1]
