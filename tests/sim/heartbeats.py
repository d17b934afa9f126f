"""How kazoo's client leaves a server that has gone silent, as `SimStore` does it.

kazoo sends a ping when it has sent nothing for a third of the session timeout. It breaks the connection when it is
about to send the next ping and the last one was not answered. Whatever else it sends counts as a heartbeat, so kazoo
never notices a silent server if the program sends requests more often than that. Nothing is simulated while pings are
answered.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.sim.store import SimStore
    from tests.sim.wire import Wire

PINGS_PER_TIMEOUT = 3


def listen(store: SimStore, wire: Wire) -> None:
    """Begin to watch the client's heartbeats if nothing gets through in one of the directions."""
    if wire.whole or wire.listening:
        return
    wire.listening, wire.pinged = True, False
    now_ms = store.network.ensemble.now_ms
    if wire.sent_ms < now_ms - _pause_ms(wire):
        wire.sent_ms = now_ms  # assume that its last ping was answered
    _look_again(store, wire)


def _look(store: SimStore, wire: Wire) -> None:
    if store.wire is not wire or wire.whole:
        wire.listening = False
        return
    now_ms = store.network.ensemble.now_ms
    if now_ms >= wire.sent_ms + _pause_ms(wire) and not store.process.paused:
        if wire.pinged:
            store.break_wire("no heartbeat was answered")
            return
        wire.pinged, wire.sent_ms = True, now_ms
    _look_again(store, wire)


def _look_again(store: SimStore, wire: Wire) -> None:
    now_ms = store.network.ensemble.now_ms
    due_ms = wire.sent_ms + _pause_ms(wire)
    store.network.at(due_ms if due_ms > now_ms else now_ms + _pause_ms(wire), partial(_look, store, wire))


def _pause_ms(wire: Wire) -> int:
    return wire.session.timeout_ms // PINGS_PER_TIMEOUT
