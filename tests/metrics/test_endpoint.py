"""What coordinators and consumers serve over HTTP, on a real ZooKeeper; and addresses that can never work."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.obedient import obedient
from tests.waiting import wait_until
from zkcoord import Coordinator, UsageError
from zkcoord.core.handovers import MOMENTS
from zkcoord.embedded.server import free_ports
from zkcoord.metrics import names
from zkcoord.metrics.address import parse_address
from zkcoord.metrics.endpoint import Endpoint, Part
from zkcoord.metrics.names import Name
from zkcoord.metrics.store import MeasuredSessions
from zkcoord.operating.coordinators import ask_to_resign
from zkcoord.serving import controllers_watch
from zkcoord.shell.ports import Link, LinkChanged, StoreInput
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import CANDIDATES
from zkcoord.tree.writes import CreateNode, DeleteNode, Transaction, Write

Samples = Mapping[tuple[str, frozenset[tuple[str, str]]], float]
_given: set[int] = set()


def free_address() -> str:
    """Nobody listens there, and no other process of the tests takes the port. None is given twice."""
    while (port := free_ports(1)[0]) in _given:
        pass
    _given.add(port)
    return f"127.0.0.1:{port}"


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body; 0 when nobody answers."""
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except (OSError, HTTPException):  # or it ended in the middle of its answer
        return 0, ""


def samples(address: str) -> Samples:
    """All samples of an endpoint."""
    status, text = get(address, "/metrics")
    assert status == 200
    families = list(text_string_to_metric_families(text))
    return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}


def value(address: str, name: str, **labels: str) -> float | None:
    return samples(address).get((name, frozenset(labels.items())))


def make_topic(chroot: str, partitions: int) -> None:
    document = json.dumps({"version": 1, "partitions": {str(n): [1] for n in range(partitions)}}).encode()
    paths = ("/brokers", "/brokers/ids", "/brokers/topics")
    with Tree(chroot) as tree:
        writes = (*(CreateNode(path) for path in paths), CreateNode("/brokers/topics/clicks", document))
        assert not tree.commit(Transaction(writes=writes)).reason


@pytest.mark.zookeeper
def test_a_coordinator_and_its_consumers_serve_what_they_do(chroot: str) -> None:
    make_topic(chroot, 4)
    serving, first, second = free_address(), free_address(), free_address()
    coordinator = Coordinator(chroot, metrics=serving)
    coordinator.start()
    try:
        wait_until(lambda: get(serving, "/readyz")[0] == 200, "the coordinator is ready")
        assert value(serving, "zkcoord_coordinator_serving") == 1
        with obedient(chroot, "clicks", metrics=first) as one:
            wait_until(lambda: value(first, "zkcoord_consumer_partitions", group="g") == 4, "it has all")
            one.report(17, 5)
            with obedient(chroot, "clicks", metrics=second):
                wait_until(lambda: value(second, "zkcoord_consumer_partitions", group="g") == 2, "it has two")
                wait_until(
                    lambda: (
                        value(serving, "zkcoord_group_state", group="g", state="Stable") == 1
                        and value(serving, "zkcoord_handover_seconds_count", group="g") == 6
                    ),
                    "all six hand-overs are done",
                )
                check_coordinator(samples(serving))
                check_consumer(samples(first))
                assert {get(each, "/readyz")[0] for each in (serving, first, second)} == {200}
                check_handovers(get(serving, "/handovers?group=g")[1])
                whole = get(serving, "/handovers?group=g")[1].splitlines()
                for last, lines in (("2", whole[-2:]), ("0", []), ("7", whole), ("-1", whole), ("x", whole)):
                    assert len(get(serving, f"/handovers?group=g&last={last}")[1].splitlines()) == len(lines)
                assert get(serving, "/handovers?group=other")[0] == 404
            wait_until(lambda: get(second, "/healthz")[0] == 0, "nobody listens for who has left")
    finally:
        coordinator.stop()
    assert get(serving, "/metrics")[0] == 0


def unserved(found: Samples, metrics: Iterable[Name]) -> list[str]:
    """The metrics of which nothing is served."""
    served = {name for name, _ in found}
    return [each.name for each in metrics if not served.intersection(each.samples)]


def check_coordinator(found: Samples) -> None:
    def of(name: str, **labels: str) -> float | None:
        return found.get((name, frozenset(labels.items())))

    assert of("zkcoord_coordinator_epoch") == 1
    assert of("zkcoord_group_members", group="g") == 2
    assert of("zkcoord_group_partitions", group="g") == 4
    assert of("zkcoord_group_unowned_partitions", group="g") == 0
    assert of("zkcoord_group_commands", group="g", older="0") == 0
    assert of("zkcoord_group_evictions_total", group="g") == 0
    assert of("zkcoord_handover_stage_seconds_count", group="g", stage="stop") == 2
    assert of("zkcoord_handover_stage_seconds_count", group="g", stage="finish") == 2
    assert of("zkcoord_handover_stage_seconds_count", group="g", stage="start") == 6
    assert of("zkcoord_events_total", role="coordinator", event="elected") == 1
    assert (of("zkcoord_zookeeper_requests_total", role="coordinator", kind="commit", outcome="committed") or 0) > 5
    assert of("zkcoord_zookeeper_connected", role="coordinator") == 1
    assert (of("zkcoord_loop_step_seconds_count", role="coordinator") or 0) > 5
    others = ("zkcoord_consumer", "zkcoord_spark", "zkcoord_audit")
    assert unserved(found, [each for each in names.ALL if not each.name.startswith(others)]) == []


def check_consumer(found: Samples) -> None:
    def of(name: str) -> float | None:
        return found.get((name, frozenset({("group", "g")})))

    assert (of("zkcoord_consumer_registered"), of("zkcoord_consumer_partitions")) == (1, 2)
    assert (of("zkcoord_consumer_progress_total"), of("zkcoord_consumer_lag")) == (17, 5)
    assert 0 < (of("zkcoord_consumer_lease_seconds") or 0) < 10
    assert unserved(found, [each for each in names.ALL if each.name.startswith("zkcoord_consumer")]) == []


def check_handovers(text: str) -> None:
    told = [json.loads(line) for line in text.splitlines()]
    assert [each["group"] for each in told] == ["g"] * 6
    moved = [each for each in told if each["decided_ms"] is not None]
    assert len(moved) == 2
    for each in moved:
        moments = [each[name] for name in MOMENTS[:-1]]
        assert moments == sorted(moments)
        assert each["first_record_ms"] is None  # nobody told
        assert each["from"] != each["to"]


@contextmanager
def ready_coordinator(chroot: str) -> Iterator[Callable[[str], float | None]]:
    """A coordinator of a topic. Gives what tells the value of a metric; None: it is not ready."""
    make_topic(chroot, 4)
    address = free_address()
    coordinator = Coordinator(chroot, metrics=address)
    coordinator.start()
    try:
        yield lambda name: value(address, name) if get(address, "/readyz")[0] == 200 else None
    finally:
        coordinator.stop()


def write(chroot: str, *writes: Write) -> None:
    with Tree(chroot) as tree:
        assert not tree.commit(Transaction(writes=writes)).reason


@pytest.mark.zookeeper
def test_f158_a_coordinator_measures_that_brokers_leave_its_zookeeper_and_come_back(
    chroot: str,
) -> None:
    name = "zkcoord_brokers_leave_zookeeper"
    with ready_coordinator(chroot) as told:
        wait_until(lambda: told(name) == 0, "nothing is said")
        write(chroot, CreateNode("/controller", b'{"version":2,"brokerid":3000,"kraftControllerEpoch":1}'))
        wait_until(lambda: told(name) == 1, "the move is seen")
        write(chroot, DeleteNode("/controller", -1))
        wait_until(lambda: told(name) == 0, "it was taken back")


@pytest.mark.zookeeper
def test_f242_a_coordinator_measures_that_the_controllers_are_silent(
    chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controllers_watch, "SILENT_MS", 1)
    name = "zkcoord_kraft_controllers_silent"
    move = CreateNode("/migration", b'{"kraft_controller_id":3000,"kraft_metadata_offset":7}')
    with ready_coordinator(chroot) as told:
        wait_until(lambda: told(name) == 0, "nothing is said")
        write(chroot, move, CreateNode("/brokers/ids/0", b"{}"))
        wait_until(lambda: told(name) == 1, "they are silent")
        write(chroot, DeleteNode("/migration", -1))
        wait_until(lambda: told(name) == 0, "the move was taken back")


@pytest.mark.zookeeper
def test_groups_are_shown_by_the_coordinator_that_serves_and_by_no_one_that_has_resigned(chroot: str) -> None:
    make_topic(chroot, 4)
    addresses = [free_address(), free_address()]
    coordinators = [Coordinator(chroot, number, metrics=address) for number, address in enumerate(addresses)]

    def shown() -> list[float | None]:
        return [value(each, "zkcoord_group_members", group="g") for each in addresses]

    try:
        coordinators[0].start()
        wait_until(lambda: get(addresses[0], "/readyz")[0] == 200, "one serves")
        coordinators[1].start()
        with obedient(chroot, "clicks"):
            wait_until(lambda: get(addresses[1], "/readyz")[0] == 200 and shown() == [1, None], "it shows the group")
            with Tree(chroot) as tree:
                ask_to_resign(tree, f"{CANDIDATES}/0", 0)
            wait_until(lambda: shown() == [None, 1], "the other one shows it")
            assert [get(each, "/handovers?group=g")[0] for each in addresses] == [404, 200]
    finally:
        for each in coordinators:
            each.stop()


@pytest.mark.zookeeper
def test_a_standby_is_ready_and_a_consumer_without_a_tree_is_alive_but_not_ready(chroot: str) -> None:
    one, two, alone = free_address(), free_address(), free_address()
    with obedient(chroot, "clicks", metrics=alone):
        wait_until(
            lambda: get(alone, "/readyz")[1] == "consumer of group g: it is no member of group g at present\n", ""
        )
        assert get(alone, "/healthz") == (200, "consumer of group g: ok\n")
        coordinators = [Coordinator(chroot, metrics=address) for address in (one, two)]
        try:
            for each in coordinators:
                each.start()
            wait_until(lambda: [get(each, "/readyz")[0] for each in (one, two)] == [200, 200], "both are ready")
            serving = [value(each, "zkcoord_coordinator_serving") for each in (one, two)]
            assert sorted(map(float, filter(lambda v: v is not None, serving))) == [0, 1]  # type: ignore[arg-type]
        finally:
            for each in coordinators:
                each.stop()


@pytest.mark.zookeeper
def test_a_program_whose_loop_has_ended_by_itself_is_sick(zookeeper: Any) -> None:
    address = free_address()
    lost = obedient(f"{zookeeper.hosts}/no-such-chroot", "clicks", metrics=address)
    lost.start()
    try:
        wait_until(lambda: get(address, "/healthz")[0] == 503, "it is sick")
        assert get(address, "/healthz")[1] == "consumer of group g: its loop has ended\n"
        assert lost.error is not None
    finally:
        lost.stop()


def test_parts_of_one_address_are_added_up_and_the_last_closes_it() -> None:
    address = free_address()
    endpoint = Endpoint.at(address)
    parts = [Part(f"part {n}", lambda: None, lambda: None) for n in (1, 2)]
    for part in parts:
        assert Endpoint.at(address) is endpoint
        endpoint.add(part)
        endpoint.looked_up.sources.append(lambda: [(names.READABLE, ("g",), 3)])
    assert value(address, "zkcoord_consumer_partitions", group="g") == 6
    assert get(address, "/healthz") == (200, "part 1: ok\npart 2: ok\n")
    assert get(address, "/other")[0] == 404
    endpoint.remove(parts[0])
    assert get(address, "/healthz") == (200, "part 2: ok\n")
    endpoint.remove(parts[1])
    assert get(address, "/healthz")[0] == 0


def test_an_address_that_somebody_else_has_is_refused_when_the_program_begins() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        member = obedient("127.0.0.1:1", "clicks", metrics=address)
        with pytest.raises(
            UsageError, match=rf"nobody can listen on {address} for metrics \(Address already in use\): give"
        ):
            member.start()
        member.stop()


@pytest.mark.parametrize(
    "text", ["", "9464", "host:", "host:port", "host:70000", "a b:1", "http://h:1", "[::1:1", None, 9464]
)
def test_a_wrong_address_is_refused(text: object) -> None:
    with pytest.raises(UsageError, match="give HOST:PORT"):
        parse_address(text)


@pytest.mark.parametrize("text", ["::1:9464", "::1", "fe80::1:1"])
def test_an_ipv6_address_without_brackets_is_told_its_form(text: str) -> None:
    with pytest.raises(UsageError, match=r"; an IPv6 address stands in brackets, as in \[::1\]:9464$"):
        parse_address(text)


def test_a_partition_has_no_metric_of_its_own() -> None:
    assert not any("partition" in each.labels or "consumer" in each.labels for each in names.ALL)


def quiet() -> Part:
    return Part("quiet", sick=lambda: None, busy=lambda: None)


@pytest.mark.parametrize("begin", [b"", b"GET /metrics HTTP/1.0\r\nx: "])
def test_f190_a_request_in_single_bytes_is_not_waited_for(begin: bytes) -> None:
    """A coordinator's process had a thread for each such client, as long as it sent something now and then."""
    shown, part = Endpoint(parse_address("127.0.0.1:0"), request_seconds=0.3), quiet()
    shown.add(part)
    try:
        with socket.create_connection(("127.0.0.1", shown.port or 0)) as client:
            client.sendall(begin)
            client.settimeout(0.05)

            def hung_up() -> bool:
                try:
                    if begin:
                        client.sendall(b"x")
                    return client.recv(100) == b""
                except TimeoutError:
                    return False
                except ConnectionError:
                    return True

            wait_until(hung_up, "it hangs up")
    finally:
        shown.remove(part)


def test_f190_so_many_requests_are_answered_at_a_time_and_no_more() -> None:
    shown, part = Endpoint(parse_address("127.0.0.1:0"), requests_max=2), quiet()
    shown.add(part)
    address = f"127.0.0.1:{shown.port}"
    try:
        idle = [socket.create_connection(("127.0.0.1", shown.port or 0)) for _ in range(2)]
        wait_until(lambda: get(address, "/healthz")[0] == 0, "the next one is hung up on")
        for each in idle:
            each.close()
        wait_until(lambda: get(address, "/healthz")[0] == 200, "others are answered again")
    finally:
        shown.remove(part)


def test_a_sick_part_is_not_ready_and_a_senseless_number_asks_for_all() -> None:
    asked: list[int | None] = []

    def handovers(group: str, last: int | None) -> list[dict[str, str]]:
        asked.append(last)
        return []

    shown = Endpoint(parse_address("127.0.0.1:0"))
    part = Part("p", sick=lambda: "hangs", busy=lambda: None, handovers=handovers)
    shown.add(part)
    try:
        address = f"127.0.0.1:{shown.port}"
        assert get(address, "/readyz") == get(address, "/healthz") == (503, "p: hangs\n")
        for number in ("5", "9" * 5_000, "-1", "x"):
            assert get(address, f"/handovers?group=g&last={number}") == (200, "")
        assert asked == [5, None, None, None]
    finally:
        shown.remove(part)


def test_a_session_that_was_given_up_is_connected_no_more() -> None:
    told: list[Callable[[StoreInput], None]] = []

    def opened(sink: Callable[[StoreInput], None]) -> Any:
        told.append(sink)

    sessions = MeasuredSessions(opened, Endpoint(("127.0.0.1", 0)).instruments, "consumer")
    sessions(lambda item: None)
    told[0](LinkChanged(Link.CONNECTED))
    assert sessions.connected
    sessions(lambda item: None)  # the first one was silent, and says nothing of its end
    assert not sessions.connected
