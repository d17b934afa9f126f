"""Failure cases of three servers, with Kafka beside them, on real `zkcoord` processes.

Each test ends with `prove`: both invariants, judged from the consumers' own logs, and every record read and committed.
The longest session is 5 s, so a consumer may read for 3.3 s after the last thing that it heard from a leader.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import partial

import pytest

from tests.containers.ensemble import SESSION_MS, SMALL_DISK, Box, Ensemble, ServerBox, wait_until
from tests.containers.processes import Process, now_ms
from tests.containers.scene import Scene

pytestmark = [pytest.mark.docker, pytest.mark.kafka, pytest.mark.namespaces]

LEASE_MS = SESSION_MS * 2 // 3
TRIES = 3
NUMBERS = itertools.count(1)


@pytest.fixture
def scene(ensemble: tuple[Ensemble, list[Box]]) -> Iterator[Scene]:
    """A topic of its own; everything runs and every link is whole again afterwards."""
    running, seats = ensemble
    with Scene(running, seats, f"g{next(NUMBERS)}") as one:
        yield one


def server_of(scene: Scene, process: Process) -> ServerBox:
    """The server that a process is connected to."""
    found: list[ServerBox] = []

    def look() -> bool:
        found[:] = [server for server in scene.ensemble.servers if server.has_client(process.seat.address)]
        return len(found) == 1

    wait_until(look, f"{process.name} is connected")
    return found[0]


def passed(moment_ms: int) -> bool:
    """Whether it is later than that."""
    return now_ms() > moment_ms


def test_f33_when_the_leader_is_killed_everybody_goes_on_in_the_same_session(scene: Scene) -> None:
    first, second, a, b = scene.begin()
    everybody = (first, second, a, b)
    for _ in range(TRIES):
        begin_ms = now_ms()
        scene.ensemble.leader().engine.kill()
        wait_until(lambda: any(s.mode() == "leader" for s in scene.ensemble.servers), "another leader")
        elected_ms = now_ms() - begin_ms

        scene.wait_committed(since=[a, b])
        scene.wait_shared()
        if elected_ms < SESSION_MS // 2:
            break
        scene.ensemble.heal()  # on a busy machine the servers may need a whole session to agree
    ended = [process.of("session_lost", "deposed", "elected", since_ms=begin_ms) for process in everybody]
    assert ended == [[]] * len(everybody), f"there was a leader after {elected_ms} ms"
    assert scene.registered() == {a.ids()[-1], b.ids()[-1]}
    scene.prove()


def test_f33_the_clients_of_a_follower_that_hangs_go_to_another_in_the_same_session(scene: Scene) -> None:
    """Its kernel still takes what they send, and no connection is closed."""
    followers = scene.ensemble.followers()
    _, _, a, b = scene.begin(",".join(server.hosts for server in followers))
    hanging = server_of(scene, a)

    hanging.engine.pause()
    begin_ms = now_ms()
    lost = a.wait("fetch_lost", since_ms=begin_ms)
    a.wait("fetch_started", since_ms=lost["mono_ms"])

    assert server_of(scene, a) in set(followers) - {hanging}
    hanging.engine.unpause()
    scene.wait_shared()
    scene.wait_committed(since=[a, b])
    assert len(a.ids()) == 1
    scene.prove()


def test_f33_a_loss_of_quorum_shorter_than_the_leases_is_not_noticed(scene: Scene) -> None:
    first, second, a, b = scene.begin()
    for _ in range(TRIES):
        begin_ms = now_ms()
        followers = scene.ensemble.followers()
        for server in followers:
            server.engine.pause()
        paused_ms = now_ms()
        wait_until(partial(passed, paused_ms + LEASE_MS // 2), "half a lease long")
        silent = [c.of("offsets_committed", since_ms=paused_ms + 200) for c in (a, b)]
        for server in followers:
            server.engine.unpause()
        took_ms = now_ms() - begin_ms

        scene.wait_committed(since=[a, b])
        scene.wait_shared()
        if took_ms < LEASE_MS * 3 // 4:
            break  # on a busy machine it may last longer than it should
    assert silent == [[], []]
    assert [c.of("fetch_lost", "fetch_started", "session_lost", since_ms=begin_ms) for c in (a, b)] == [[], []]
    assert first.of("session_lost", "deposed", "elected", since_ms=begin_ms) == []
    assert second.of("elected", since_ms=begin_ms) == []
    scene.prove()


@pytest.mark.parametrize("sessions", [pytest.param(4), pytest.param(12, marks=pytest.mark.long)])
def test_f33_without_a_quorum_for_so_many_sessions_nobody_reads_and_then_all_go_on(scene: Scene, sessions: int) -> None:
    """What is left of the ensemble is read-only: it answers who takes such answers, and must not keep a lease
    alive."""
    _, _, a, b = scene.begin()
    left, *dead = scene.ensemble.servers

    for server in dead:
        server.engine.kill()
    begin_ms = now_ms()
    for consumer in (a, b):
        consumer.wait("fetch_lost", since_ms=begin_ms)
    silent_ms = now_ms()
    wait_until(lambda: left.mode() == "read-only", "the last server is read-only")
    length_ms = sessions * SESSION_MS
    wait_until(lambda: now_ms() > begin_ms + length_ms, f"{sessions} sessions", 2 * length_ms / 1000)
    assert [c.of("fetched", "fetch_started", "offsets_committed", since_ms=silent_ms) for c in (a, b)] == [[], []]
    for server in dead:
        server.engine.start()

    scene.wait_shared()
    scene.wait_committed(since=[a, b])
    scene.prove()


def test_f33_a_server_whose_disk_is_full_leaves_and_the_others_go_on(scene: Scene) -> None:
    _, _, a, b = scene.begin()
    full = scene.ensemble.servers[SMALL_DISK - 1]
    begin_ms = now_ms()

    full.fill_disk()
    wait_until(lambda: not full.mode(), "it serves no more")
    wait_until(lambda: any(s.mode() == "leader" for s in scene.ensemble.servers), "the two others have a leader")
    scene.wait_shared()
    scene.wait_committed(since=[a, b])
    assert [len(a.ids()), len(b.ids())] == [1, 1]
    assert [c.of("session_lost", since_ms=begin_ms) for c in (a, b)] == [[], []]
    full.free_disk()
    wait_until(lambda: full.mode() == "follower", "with room on its disk it is back")

    scene.prove()


def test_f05_a_command_written_while_its_watch_was_lost_in_an_outage_of_three_sessions_is_read(scene: Scene) -> None:
    """The event of the watch is swallowed, the servers go away for three sessions; the session stands, and so does the
    command."""
    _, _, a, b = scene.begin()
    scene.wait_shared()
    _, *others = scene.ensemble.servers

    a.seat.cut_from(*(server.address for server in scene.ensemble.servers))
    before = a.held() | b.held()
    scene.add_partition()
    wait_until(lambda: scene.commands(a) or len(b.held()) > 2, "the coordinator sends the new partition to somebody")
    if not scene.commands(a):  # the other one has it: the next is for this one
        scene.add_partition()
        wait_until(lambda: bool(scene.commands(a)), "a command for the one that is cut off")
    for server in others:
        server.engine.kill()
    begin_ms = now_ms()
    wait_until(lambda: now_ms() > begin_ms + 3 * SESSION_MS, "three sessions long")
    a.seat.mend()
    for server in others:
        server.engine.start()

    scene.wait_shared()
    assert len(a.ids()) == 1
    assert a.held() - before
    scene.prove()


def test_f36_a_follower_cut_off_from_its_leader_does_not_keep_its_clients_reading(scene: Scene) -> None:
    """It takes itself for a follower for 10 s, and answers pings and reads; the leader ends the session after 5 s.

    (A client that has just written gets no answer any more: what it asks for behind it waits. So this one is idle.)
    """
    follower, other = scene.ensemble.followers()
    leader = scene.ensemble.leader()
    _, _, a, b = scene.begin(follower.hosts, f"{leader.hosts},{other.hosts}")
    mine, name = a.held(), a.ids()[-1]
    scene.settle_idle()

    follower.cut_from(leader.address)
    lost = a.wait("fetch_lost", since_ms=now_ms())
    wait_until(lambda: b.held() >= mine, "the other one reads everything")

    assert follower.mode() == "follower"
    assert b.wait("fetch_started", since_ms=lost["mono_ms"])["partitions"]
    assert name not in scene.registered()
    scene.producing.go_on()
    scene.wait_committed(since=[b])
    follower.mend()
    scene.wait_shared()
    assert len(a.ids()) == 2
    scene.prove()


def test_f36_a_leader_cut_off_from_its_followers_does_not_keep_its_clients_reading(scene: Scene) -> None:
    """It takes itself for the leader for 10 s, and while nothing is written it answers even a sync. The others elect
    one of them, who ends the session."""
    leader, (one, other) = scene.ensemble.leader(), scene.ensemble.followers()
    _, _, a, b = scene.begin(leader.hosts, f"{one.hosts},{other.hosts}")
    mine, name = a.held(), a.ids()[-1]
    scene.settle_idle()

    leader.cut_from(one.address, other.address)
    lost = a.wait("fetch_lost", since_ms=now_ms())
    wait_until(lambda: b.held() >= mine, "the other one reads everything")

    assert b.wait("fetch_started", since_ms=lost["mono_ms"])["partitions"]
    assert name not in scene.registered()
    leader.mend()
    scene.producing.go_on()
    scene.wait_shared()
    assert len(a.ids()) == 2
    scene.prove()


@pytest.mark.parametrize("busy", [True, False], ids=["busy", "idle"])
def test_f37_a_consumer_cut_off_from_zookeeper_alone_stops_before_another_begins(scene: Scene, busy: bool) -> None:
    """It reaches Kafka all the time. An idle one has nothing to read and nothing to commit."""
    _, _, a, b = scene.begin()
    mine, name = a.held(), a.ids()[-1]
    if not busy:
        scene.settle_idle()

    a.seat.cut_from(*(server.address for server in scene.ensemble.servers))
    cut_ms = now_ms()
    lost = a.wait("fetch_lost", since_ms=cut_ms)
    lease_ms = max(event["lease_until_mono_ms"] for event in a.of("lease_extended"))
    # its session stands, a third of its timeout longer than its lease: nobody else can have begun
    assert name in scene.registered() or now_ms() > lease_ms + SESSION_MS - LEASE_MS
    wait_until(lambda: b.held() >= mine, "the other one has everything")

    assert set(lost["partitions"]) == mine
    assert busy or a.of("fetched", since_ms=cut_ms) == []
    assert name not in scene.registered()
    if not busy:
        scene.producing.go_on()
    scene.wait_committed(since=[b])
    a.seat.mend()
    scene.wait_shared()
    assert len(a.ids()) == 2
    scene.prove()


def test_f37_a_black_hole_before_one_server_sends_its_client_to_another_in_the_same_session(scene: Scene) -> None:
    _, _, a, b = scene.begin()
    lost_server = server_of(scene, a)

    a.seat.cut_from(lost_server.address)
    cut_ms = now_ms()
    lost = a.wait("fetch_lost", since_ms=cut_ms)
    a.wait("fetch_started", since_ms=lost["mono_ms"])

    scene.wait_shared()
    scene.wait_committed(since=[a, b])
    assert [len(a.ids()), len(b.ids())] == [1, 1]
    scene.prove()


def test_f37_a_coordinator_cut_off_from_zookeeper_is_replaced_and_changes_nothing_later(
    scene: Scene,
) -> None:
    first, second, a, b = scene.begin()

    first.seat.cut_from(*(server.address for server in scene.ensemble.servers))
    cut_ms = now_ms()
    c = scene.consume()
    second.wait("elected", since_ms=cut_ms)
    scene.wait_shared()
    first.seat.mend()
    mended_ms = now_ms()
    wait_until(lambda: scene.candidates() == {"0", "1"}, "it stands by")

    assert first.of("elected", "start_sent", "stop_sent", "rebalance_started", since_ms=mended_ms) == []
    assert [len(member.ids()) for member in (a, b, c)] == [1, 1, 1]
    scene.wait_committed(since=[a, b, c])
    scene.prove()


def test_f01_a_coordinator_frozen_beyond_its_session_changes_nothing_when_it_goes_on(scene: Scene) -> None:
    first, second, a, b = scene.begin()

    first.pause()
    frozen_ms = now_ms()
    c = scene.consume()
    second.wait("elected", since_ms=frozen_ms)
    scene.wait_shared()
    first.resume()
    (resumed_ms,) = first.resumed_ms
    wait_until(lambda: scene.candidates() == {"0", "1"}, "it stands by")

    assert first.of("elected", "start_sent", "stop_sent", "rebalance_started", since_ms=resumed_ms) == []
    assert [len(member.ids()) for member in (a, b, c)] == [1, 1, 1]
    scene.wait_committed(since=[a, b, c])
    scene.prove()


def test_f15_a_consumer_frozen_beyond_its_session_commits_nothing_when_it_goes_on(scene: Scene) -> None:
    _, _, a, b = scene.begin()
    mine, name = a.held(), a.ids()[-1]

    a.pause()
    wait_until(lambda: b.held() >= mine, "the other one reads everything")
    scene.wait_committed(since=[b])
    assert name not in scene.registered()
    a.resume()
    (resumed_ms,) = a.resumed_ms
    a.wait("fetch_lost", "session_lost", since_ms=resumed_ms)
    scene.wait_shared()

    assert len(a.ids()) == 2
    begun = a.wait("fetch_started", since_ms=resumed_ms)["mono_ms"]
    assert [e for e in a.of("offsets_committed", since_ms=resumed_ms) if e["mono_ms"] < begun] == []
    scene.wait_committed(since=[a, b])
    scene.prove()
