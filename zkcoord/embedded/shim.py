"""Runs one server and ends it when its owner is gone. Started by file name; imports the standard library only.

The kernel's death signal (PR_SET_PDEATHSIG) alone is not enough. The kernel sends it when the *thread* that forked
ends, and in a program with threads that may be long before the program ends. So this process runs between owner and
server:

    owner ──control socket──► shim (one thread) ──fork──► server

- If the owner ends in any way, SIGKILL included, its end of the socket closes, and the shim reads the end of file.
- If a forked copy of the owner keeps that end open, the shim still notices: it checks its parent's id twice a second.
- If the shim itself is killed, the kernel sends the server its death signal: the shim has only one thread.

The owner's orders are single letters (SIGNALS). The shim answers with the same letter when an order is carried out. So
the server's parent sends all signals. It has not reaped the server, so the server's id cannot belong to another
process.
"""

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable

SIGNALS = {b"T": signal.SIGTERM, b"K": signal.SIGKILL, b"S": signal.SIGSTOP, b"C": signal.SIGCONT}
OWNER_POLL_S = 0.5
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_this_process() -> Callable[[], None] | None:
    """Have the kernel kill the server when this process dies (Linux only). The server calls it between fork and
    exec."""
    if not sys.platform.startswith("linux"):
        return None
    prctl, shim_pid = ctypes.CDLL(None).prctl, os.getpid()

    def set_death_signal() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != shim_pid:  # this process died between the fork and the call above
            os._exit(1)

    return set_death_signal


def obey(order: bytes, server: "subprocess.Popen[bytes]") -> None:
    """Send the signal that `order` names. After a stop, wait until the server is suspended. After a termination, send
    SIGCONT, so that a suspended server handles it."""
    server.send_signal(SIGNALS[order])
    if order == b"S" and hasattr(os, "waitid"):
        os.waitid(os.P_PID, server.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
    if order == b"T":
        server.send_signal(signal.SIGCONT)  # a suspended process does not handle SIGTERM


def serve(control: socket.socket, wakeup: socket.socket, owner_pid: int, server: "subprocess.Popen[bytes]") -> None:
    """Obey until the server has ended, the owner is gone, or this process is told to end."""
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        while server.poll() is None and os.getppid() == owner_pid:
            for key, _ in selector.select(OWNER_POLL_S):
                if key.fileobj is wakeup:
                    if set(wakeup.recv(64)) - {signal.SIGCHLD}:
                        return
                    continue
                order = control.recv(1)
                if not order:
                    return
                obey(order, server)
                control.sendall(order)


def finish(server: "subprocess.Popen[bytes]", grace_ms: int) -> int:
    """End the server: SIGTERM, `grace_ms` later SIGKILL; return its exit code, 128 + n for signal n.

    Then send SIGTERM to the processes that the server has started and left behind (a Spark's Java): to the whole
    process group of this process, whose own handler ignores it. This is done only if the group was made for this
    process (`start_new_session`).
    """
    if server.poll() is None:
        obey(b"T", server)
        try:
            server.wait(grace_ms / 1000)
        except subprocess.TimeoutExpired:
            server.kill()
    code = server.wait()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGTERM)
    return code if code >= 0 else 128 - code


def main(argv: list[str]) -> int:
    """`shim.py CONTROL_FD OWNER_PID GRACE_MS COMMAND…`: the exit code is the server's."""
    owner_pid, grace_ms = int(argv[1]), int(argv[2])
    wakeup, wakeup_in = socket.socketpair()
    wakeup_in.setblocking(False)
    signal.set_wakeup_fd(wakeup_in.fileno())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    with socket.socket(fileno=int(argv[0])) as control:
        server = subprocess.Popen(argv[3:], preexec_fn=die_with_this_process())
        with contextlib.suppress(OSError):  # the owner may be gone already: `serve` sees it and returns
            control.sendall(b"%d\n" % server.pid)
            serve(control, wakeup, owner_pid, server)
        return finish(server, grace_ms)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
