"""Runs one role: it takes inputs in, reads dirty nodes, lets the role decide, sends its transactions, and waits.

One loop serves one role (a coordinator or a consumer) and owns its session. A lost session is discarded with everything
that was read in it, and a new one is opened (rule 6). The loop knows nothing of groups, commands or offsets, and never
blocks. The role is told the outcome of a write; it learns the effect by reading.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zkcoord.errors import InvariantError
from zkcoord.shell.hearing import says_something
from zkcoord.shell.ports import (
    TOO_LARGE,
    CallDone,
    CommitDone,
    FromStore,
    Input,
    Link,
    LinkChanged,
    Outcome,
    ReadDone,
    Request,
    StoreFactory,
    StoreInput,
    SyncDone,
    Unreadable,
    WatchFired,
    refuse_requests,
)
from zkcoord.shell.role import Events, Role
from zkcoord.shell.session_state import Lane, Sent, SessionState
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.snapshot import parents
from zkcoord.tree.writes import Transaction

REOPEN_MS = 250
"""ms that a loop waits before it opens a new session after a lost one, so that a flapping network makes no storm."""

REFUSALS_FREE, REFUSED_MS, REFUSED_MS_MAX = 3, 20, 5_000
"""After this many refusals in a row, which are ordinary races, the lane waits: ms of the first wait, which doubles, and
of the longest. More refusals mean that reading again did not help, for example because of a missing right."""

WHO_ACTS = {
    "NoAuth": ": an operator must grant this user the right to write there (ACL)",
    TOO_LARGE: ": an operator must make smaller what stands there",
}
"""Reasons of refusals that reading again will never mend -> what somebody must do."""

UNREADABLE_MS, UNREADABLE_BREAKING_MS = 30_000, 300_000
"""ms after which a node that cannot be read is read again, since somebody may have granted the right. The second value
is for a node whose reading breaks the connection, after which everything is read again."""


class Loop:
    """Runs one role over its sessions. `step` is the whole flow. A driver calls it with the inputs of the inbox."""

    def __init__(self, open_session: StoreFactory, put: Callable[[Input], None]) -> None:
        self._open_session = open_session
        self._put = put
        self._role: Role | None = None
        self._session: SessionState | None = None
        self._sessions = 0
        self._token = 0
        self._steps = 0
        self._reopen_at_ms: int | None = 0
        # invariant: None exactly while there is a session, or when the loop has finished
        self._report: Events = lambda name, fields: None
        self.finished = False
        self.fatal: BaseException | None = None
        self._failed_ms: int | None = None  # since when the loop only waits until it may close its session

    def run_role(self, role: Role, events: Events | None = None) -> None:
        """Set the role, and the receiver of events. Call it once, before the first step."""
        self._role, self._report = role, events or self._report

    @property
    def role(self) -> Role | None:
        """The role that it runs."""
        return self._role

    # what a role may ask for

    @property
    def tracker(self) -> Tracker:
        """The wants of the current session."""
        session = self._session
        return self._current().tracker if session is None else session.tracker

    @property
    def connected(self) -> bool:
        """True while the current session is connected."""
        return self._session is not None and self._session.connected

    @property
    def settled(self) -> bool:
        """True when the session is connected, and no sync delays the reads: then clean nodes are also current."""
        return self._session is not None and self._session.connected and self._session.gate is None

    @property
    def commits_in_flight(self) -> int:
        """Number of transactions without an outcome."""
        return len(self._session.commits) if self._session else 0

    def ready(self, lane: str, now_ms: int) -> bool:
        """False while a lane waits because its transactions were refused again and again."""
        known = self._session.lanes.get(lane) if self._session else None
        return known is None or now_ms >= known.until_ms

    def commit(self, transaction: Transaction, tag: Any, now_ms: int, lane: str = "") -> None:
        """Send one multi. All nodes that it touches are dirty from now on. Refusals in the same `lane` are counted
        together."""
        session = self._current()
        token = self._next_token()
        touched, tells = session.tracker.written(token, transaction.touched())
        session.commits[token] = Sent(tag, lane, now_ms, self._steps, transaction, touched, tells)
        session.store.commit(token, transaction)

    def sync(self, now_ms: int) -> None:
        """Send a sync to the leader, to extend a lease."""
        session = self._current()
        token = self._next_token()
        session.syncs[token] = now_ms
        session.store.sync(token)

    def end_session(self, now_ms: int, *, reopen_in_ms: int | None) -> None:
        """Close the session and forget it. A new one is opened after `reopen_in_ms`; None: the loop is finished."""
        if self._session is not None:
            self._session.store.close()
            self._session = None
        self._reopen_at_ms = None if reopen_in_ms is None else now_ms + reopen_in_ms
        self.finished = reopen_in_ms is None

    def fail(self, error: BaseException, now_ms: int) -> None:
        """End the loop for good with an error that somebody must act on, as soon as the role allows the session's
        end."""
        self.fatal = self.fatal or error
        self._failed_ms = now_ms if self._failed_ms is None else self._failed_ms
        self._end(self._failed_ms, now_ms)

    # the flow

    def step(self, inputs: Sequence[Input], now_ms: int) -> int | None:
        """Take inputs in, decide, send. Returns when to step again at the latest. None: only when an input comes."""
        role = self._role
        if role is None or self.finished:
            return None
        self._steps += 1
        for place, item in enumerate(inputs):
            if self._failed_ms is None:
                self._take(role, item, now_ms)
            elif isinstance(item, CallDone):
                role.called(item, now_ms)
            if self.finished:
                refuse_requests(inputs[place + 1 :])
                return None
        if self._failed_ms is not None:
            refuse_requests(inputs)
            return self._end(self._failed_ms, now_ms)
        if self._reopen_at_ms is not None:
            self._open_when_due(self._reopen_at_ms, now_ms)
        if self._session is not None:
            self._session.tracker.resume(now_ms)
        self._send_reads()
        wake_at_ms = role.decide(now_ms)
        if self.finished:
            return None
        if self._failed_ms is not None:
            return self._end(self._failed_ms, now_ms)
        self._send_reads()
        resume_at_ms = self._session.tracker.resume(now_ms) if self._session is not None else None
        leave_at_ms = self._leave_silent_server(now_ms)
        times = [t for t in (wake_at_ms, leave_at_ms, self._reopen_at_ms, resume_at_ms) if t is not None]
        if self._session is not None and self._session.lanes:
            times += [lane.until_ms for lane in self._session.lanes.values() if lane.until_ms > now_ms]
        return min(times, default=None)

    def _end(self, failed_ms: int, now_ms: int) -> int | None:
        """Close the session for good once the role allows it. Returns when to ask the role again."""
        try:
            wake_at_ms = self._role.ended(now_ms) if self._role is not None else None
        except Exception:  # after a bug the role may be in any state: it reads for one lease at most
            timeout_ms = self._session.hearing.timeout_ms if self._session is not None else 0
            wake_at_ms = failed_ms + timeout_ms * 2 // 3
        if wake_at_ms is None or wake_at_ms <= now_ms:
            self.end_session(now_ms, reopen_in_ms=None)
            return None
        return wake_at_ms

    def _leave_silent_server(self, now_ms: int) -> int | None:
        """Make the client look for another server in the same session when this one has not answered for too long.
        Returns when that is due."""
        session = self._session
        if session is None or not session.connected:
            return None
        leave_at_ms = session.hearing.leave_at_ms(now_ms, awaits=session.awaits)
        if leave_at_ms is None or now_ms < leave_at_ms:
            return leave_at_ms
        why = f"it has said nothing for {now_ms - session.hearing.heard_ms} ms: another is tried, in the same session"
        self._report("server_left", {"why": why, "level": "warning"})
        session.hearing.left(now_ms)
        session.store.drop_connection()
        return session.hearing.leave_at_ms(now_ms, awaits=True)

    def _take(self, role: Role, item: Input, now_ms: int) -> None:
        match item:
            case FromStore():
                if self._session is not None and self._session.number == item.session:
                    self._take_from_store(role, self._session, item.item, now_ms)
            case CallDone():
                role.called(item, now_ms)
            case Request(name="abandon"):
                self.fail(item.argument, now_ms)
                item.future.set_result(None)
            case Request():
                self._serve(role, item, now_ms)

    def _serve(self, role: Role, request: Request, now_ms: int) -> None:
        """Hand a request to the role. A bad request fails alone, unless it shows a bug."""
        try:
            role.requested(request, now_ms)
        except InvariantError:
            raise
        except Exception as error:
            if not request.future.done():
                request.future.set_exception(error)

    def _take_from_store(self, role: Role, session: SessionState, item: StoreInput, now_ms: int) -> None:
        if says_something(item) and not session.overtakes(item):
            session.hearing.heard(now_ms)
        match item:
            case SyncDone():
                self._take_sync(role, session, item, now_ms)
            case ReadDone():
                self._take_read(role, session, item, now_ms)
            case CommitDone():
                self._take_outcome(role, session, item, now_ms)
            case WatchFired():
                session.tracker.fired(item.path, data=item.data, children=item.children)
            case LinkChanged():
                self._take_link(role, session, item, now_ms)

    def _take_read(self, role: Role, session: SessionState, done: ReadDone, now_ms: int) -> None:
        for refused in done.unreadable:
            self._put_off(session, done.token, refused, now_ms)
        if done.nodes is None:
            session.tracker.unanswered(done.token)
        elif session.connected:
            fresh = session.tracker.answered(done.token, done.nodes)
            for node in fresh if session.unreadable else ():
                if session.unreadable.get(node.path, ("", ""))[0] is node.kind:
                    del session.unreadable[node.path]
            if fresh:
                role.read(fresh, now_ms)

    def _put_off(self, session: SessionState, token: int, refused: Unreadable, now_ms: int) -> None:
        """Skip this node for a while, and report once who must act. Everything that does not need it goes on."""
        wait_ms = UNREADABLE_BREAKING_MS if refused.breaks_link else UNREADABLE_MS
        session.tracker.put_off(token, refused.path, refused.kind, now_ms + wait_ms)
        if session.unreadable.get(refused.path, ("", ""))[1] != refused.why:
            session.unreadable[refused.path] = (refused.kind, refused.why)
            why = f"{refused.why}; what needs it waits, it is read again every {wait_ms // 1000} s"
            self._report("unreadable", {"path": refused.path, "why": why, "level": "warning"})

    def _take_outcome(self, role: Role, session: SessionState, done: CommitDone, now_ms: int) -> None:
        sent = session.commits.pop(done.token)
        if sent.tells and done.outcome is Outcome.COMMITTED:
            transaction, tracker = sent.transaction, session.tracker
            nodes = transaction.told(done.versions, done.made, done.zxid)
            lists = tracker.alone(done.token, done.alone, lambda before: transaction.listed(before, done.made))
            told = [*lists, *tracker.told(done.token, nodes, done.made)]
            if told:
                role.read(told, now_ms)
        session.tracker.settled(done.token, sent.touched)
        if done.outcome is Outcome.UNKNOWN:
            self._gate(session, now_ms)
        elif done.outcome is Outcome.COMMITTED:
            session.lanes.pop(sent.lane, None)
        else:
            self._refused(session, sent, done, now_ms)
        role.committed(sent.tag, done, sent.sent_ms, now_ms)

    def _refused(self, session: SessionState, sent: Sent, done: CommitDone, now_ms: int) -> None:
        """Read the nodes that the refusal was about. If that does not help, wait, and report who can help."""
        path = sent.transaction.writes[done.failed_at].path
        for changed in (path, *parents(path)):  # a parent may have gone with everything below it
            session.tracker.refused(done.token, changed)
        lane = session.lanes.setdefault(sent.lane, Lane())
        if lane.step == sent.step:  # one cause: everything behind a refused raise is refused with it
            return
        lane.step = sent.step
        lane.refused += 1
        excess = lane.refused - REFUSALS_FREE
        if excess > 0:
            lane.until_ms = now_ms + min(REFUSED_MS << min(excess, 20), REFUSED_MS_MAX)
        if excess == 1:
            why = f"{done.reason}, {lane.refused} times in a row, at: {sent.transaction.why}"
            acts = WHO_ACTS.get(done.reason, "")
            self._report("write_refused", {"path": path, "why": why + acts, "level": "warning"})

    def _take_sync(self, role: Role, session: SessionState, done: SyncDone, now_ms: int) -> None:
        sent_ms = session.syncs.pop(done.token)
        if done.ok:
            if done.token == session.gate:
                session.gate = None
            role.synced(sent_ms, now_ms)
        elif done.token == session.gate:
            self._gate(session, now_ms)

    def _take_link(self, role: Role, session: SessionState, change: LinkChanged, now_ms: int) -> None:
        session.connected = change.link is Link.CONNECTED
        if session.connected:
            session.hearing.timeout_ms = change.session_timeout_ms
        if change.link is Link.LOST:
            session.store.close()
            self._session = None
            self._reopen_at_ms = now_ms + REOPEN_MS
            role.session_lost(now_ms)
        elif change.link is Link.SUSPENDED:
            session.tracker.touch_all()
            role.session_suspended(now_ms)
        elif session.opened:
            self._gate(session, now_ms)
            role.session_resumed(change.session_timeout_ms, now_ms)
        else:
            session.opened = True
            role.session_opened(change.session_id, change.session_timeout_ms, now_ms)

    def _gate(self, session: SessionState, now_ms: int) -> None:
        """Read everything again, after a sync: the reads must show everything that happened."""
        session.gate = 0
        session.tracker.touch_all()
        if session.connected:
            session.gate = token = self._next_token()
            session.syncs[token] = now_ms
            session.store.sync(token)

    def _open_when_due(self, due_ms: int, now_ms: int) -> None:
        if now_ms < due_ms:
            return
        self._reopen_at_ms = None
        self._sessions += 1
        number, put = self._sessions, self._put
        store = self._open_session(lambda item: put(FromStore(number, item)))
        self._session = SessionState(number, store)

    def _send_reads(self) -> None:
        session = self._session
        if session is None or not session.tracker.asks or not session.connected or session.gate is not None:
            return
        token = self._next_token()
        session.store.read(token, session.tracker.take(token))

    def _current(self) -> SessionState:
        if self._session is None:
            raise InvariantError("there is no session")
        return self._session

    def _next_token(self) -> int:
        self._token += 1
        return self._token
