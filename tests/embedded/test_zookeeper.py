"""A real ZooKeeper as a child process: it comes up, keeps its data, listens at home only, and dies with its owner."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.embedded.sockets import LOOPBACK, listening
from tests.waiting import wait_until
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.server import port_is_free
from zkcoord.errors import UnavailableError, UsageError

pytestmark = pytest.mark.zookeeper

DEADLINE_S = 120.0  # only what fails takes so long
OWNER = """
import sys, threading
from zkcoord.embedded import EmbeddedZooKeeper
server = EmbeddedZooKeeper(sys.argv[1], fsync=False)
thread = threading.Thread(target=server.start)  # a thread that is over long before the owner is
thread.start(); thread.join()
print(server.pid, server.port, flush=True)
sys.stdin.read()
"""


def gone(pid: int) -> bool:
    """No such process, or one that only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def write_and_read(hosts: str, path: str) -> bytes:
    """Create the node if it is absent and return its data."""
    client = KazooClient(hosts)
    client.start(timeout=DEADLINE_S)
    try:
        if not client.exists(path):
            client.create(path, b"kept")
        return bytes(client.get(path)[0])
    finally:
        client.stop()
        client.close()


def test_data_and_port_survive_a_stop_and_a_kill(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path / "zk", fsync=False) as server:
        hosts = server.hosts
        write_and_read(hosts, "/node")
        for end in (server.stop, server.kill):
            end()
            assert not server.running
            assert not server.ready()
            server.start()
            assert server.hosts == hosts
            version = KazooClient(hosts)
            version.start(timeout=DEADLINE_S)
            assert version.get("/node")[0] == b"kept"
            version.stop()
            version.close()
    assert (tmp_path / "zk" / "data").is_dir()


def test_a_data_directory_made_here_is_removed_at_the_end() -> None:
    with EmbeddedZooKeeper(fsync=False) as server:
        assert server.data_dir.is_dir()
        pid = server.pid
    assert not server.data_dir.exists()
    assert pid is not None
    assert gone(pid)


def test_it_listens_on_the_loopback_only(zookeeper: EmbeddedZooKeeper) -> None:
    assert zookeeper.pid is not None
    assert listening(zookeeper.pid) == {f"{LOOPBACK}:{zookeeper.port:04X}"}


@pytest.mark.parametrize("turn", [1, 2])
def test_each_test_has_an_empty_chroot_of_its_own(chroot: str, turn: int) -> None:
    client = KazooClient(chroot)
    client.start(timeout=DEADLINE_S)
    try:
        assert client.get_children("/") == []
        client.create("/left-behind")
    finally:
        client.stop()
        client.close()


def test_the_counters_count_requests(zookeeper: EmbeddedZooKeeper) -> None:
    before = int(zookeeper.mntr()["zk_packets_received"])
    write_and_read(zookeeper.hosts, "/counted")
    assert int(zookeeper.mntr()["zk_packets_received"]) > before


def test_a_paused_server_answers_nothing_and_goes_on_when_resumed() -> None:
    with EmbeddedZooKeeper(fsync=False) as server:
        server.pause()
        assert (server.running, server.ready()) == (True, False)
        with pytest.raises(UnavailableError, match="does not answer 'mntr'"):
            server.mntr()
        server.resume()
        wait_until(server.ready, "it serves")
        server.pause()  # and a paused one can be closed


def test_a_second_start_and_a_taken_port_are_refused(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="runs already"):
        zookeeper.start()
    with pytest.raises(UnavailableError, match="somebody else listens on port"):
        EmbeddedZooKeeper(tmp_path, port=zookeeper.port).start()
    with pytest.raises(UsageError, match="has not been started"):
        EmbeddedZooKeeper(tmp_path).pause()


def test_a_server_that_cannot_start_says_what_it_said(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path, settings={"tickTime": "soon"})
    with pytest.raises(UnavailableError, match=r'(?s)ended with code 2 instead of serving.*For input string: "soon"'):
        server.start()
    assert not server.running


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_it_dies_with_its_owner(tmp_path: Path, how: signal.Signals) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    with owner:
        assert owner.stdout is not None
        pid, port = map(int, owner.stdout.readline().split())
        assert not gone(pid)
        owner.send_signal(how)
        owner.wait(DEADLINE_S)
        wait_until(lambda: gone(pid), "the server is gone")
        wait_until(lambda: port_is_free(port), "its port is free")


def test_it_dies_with_its_owner_though_a_forked_copy_lives_on(tmp_path: Path) -> None:
    code = OWNER.replace("sys.stdin.read()", "import os, time\nif os.fork() == 0: time.sleep(60)\nsys.stdin.read()")
    owner = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, _ = map(int, owner.stdout.readline().split())
        children = Path(f"/proc/{owner.pid}/task/{owner.pid}/children")
        wait_until(lambda: children.read_text().count(" ") >= 2, "the copy is there")
        owner.kill()
        owner.wait(DEADLINE_S)
        wait_until(lambda: gone(pid), "the server is gone")
        os.killpg(owner.pid, signal.SIGKILL)  # the copy: still in the group that this test made


def test_it_dies_with_the_shim(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path, fsync=False) as server:
        pid = server.pid
        assert pid is not None
        shim = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(shim, signal.SIGKILL)
        wait_until(lambda: gone(pid), "the server is gone")
        wait_until(lambda: not server.running, "the shim is gone")
        server.start()
        assert server.pid != pid
