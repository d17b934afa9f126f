"""One `read` of a store: the requests for its nodes, and the combined result of their answers.

Reads are executed in order. A run of plain reads is one multi-read. A read with a watch is plain where the server keeps
the watch (`watches`). Elsewhere a few such reads are sent one by one. For many, a setWatches after the multi-read
leaves the watches, as of the answered state: the server reports at once whatever has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from kazoo.exceptions import BadArgumentsError, NoAuthError, NoNodeError, UnimplementedError

from zkcoord.errors import invariant
from zkcoord.shell.ports import ReadDone, Unreadable
from zkcoord.shell.zk import jute, multi, multiread
from zkcoord.shell.zk.connection import FRAME_BYTES_MAX, TOO_LARGE, Call
from zkcoord.shell.zk.jute import Op
from zkcoord.shell.zk.session import Session
from zkcoord.tree.snapshot import Kind, Node, Read

ROUNDS_MAX = 10
"""How often a watched read is repeated for a node that is deleted and created in between. Then the node counts as
unread."""

WATCHES_MIN = 4
"""The smallest number of watched reads of data that are sent together. Fewer are quicker one by one, which needs only
one round trip."""

NO_NODE: int = NoNodeError.code
_UNREADABLE = {
    NoAuthError.code: "ZooKeeper refuses to let us read it (NoAuth): an operator must grant READ",
    BadArgumentsError.code: "ZooKeeper refuses to let us read it (BadArguments): its path is none",
    TOO_LARGE: f"the answer is larger than {FRAME_BYTES_MAX} bytes: an operator must remove some of what is there",
}
"""Errors of a read that a repetition does not mend -> text for people. (All others but NoNode concern the connection or
the session.)"""


class Reading:
    """One `read` on its way. After it is sent, everything here happens on the connection's thread."""

    __slots__ = (
        "_kept",
        "_left",
        "_nodes",
        "_over",
        "_paths",
        "_rounds",
        "_session",
        "_unreadable",
        "_watches",
        "reads",
        "token",
    )

    def __init__(self, token: int, reads: tuple[Read, ...], session: Session) -> None:
        self.token = token
        self.reads = reads
        self._session = session
        self._watches = session.watches
        self._paths = [session.absolute(read.path) for read in reads]
        self._nodes: list[Node | None] = [None] * len(reads)
        self._kept = [False] * len(reads)  # whether the server kept a watch when each was last requested
        self._left = len(reads)
        self._over = False
        self._rounds = 0
        self._unreadable: dict[int, Unreadable] = {}

    def calls(self) -> list[Call]:
        """Return the requests, in the order of the reads. `Session.send` calls it."""
        watches = self._watches = self._session.watches
        calls = [Call(Op.REMOVE_WATCHES, jute.no_watch(path), _ignore) for path in watches.idle()]
        ordinary = 0
        for index, read in enumerate(self.reads):
            if not read.watch:
                continue
            path = self._paths[index]
            if watches.give_up(path):
                calls.append(Call(Op.REMOVE_WATCHES, jute.no_watch(path), _ignore))
            if watches.ask(path, keep=self._session.keeps_watches):
                calls.append(Call(Op.ADD_WATCH, jute.stays(path), self._added))
            self._kept[index] = watches.kept(path)
            ordinary += read.kind is Kind.DATA and not self._kept[index]
        return calls + self._reads(together=ordinary >= WATCHES_MIN)

    def _reads(self, *, together: bool) -> list[Call]:
        calls: list[Call] = []
        first, count = 0, len(self.reads)
        while first < count:
            end = first
            while end < count and self._plain(end, together):
                end += 1
            if end - first > 1 and self._session.multi_read:
                asked = [(self._paths[n], self.reads[n].kind) for n in range(first, end)]
                for size, body in multiread.chunks(asked):
                    calls.append(Call(Op.MULTI_READ, body, partial(self._bulk, first, size)))
                    first += size
                continue
            end = max(end, first + 1)
            calls.extend(self._ask(n) for n in range(first, end))
            first = end
        return calls

    def _plain(self, index: int, together: bool) -> bool:
        read = self.reads[index]
        return self._kept[index] or (read.kind is Kind.DATA and (together or not read.watch))

    def fail(self) -> None:
        """Answer once that nothing was read: the connection broke."""
        if not self._over:
            self._over = True
            self._session.post(ReadDone(self.token, None, tuple(self._unreadable.values())))

    def _added(self, error: int, frame: bytes, _offset: int) -> None:
        """Take in whether the server keeps a watch. A server with another watch manager answers MarshallingError, and a
        busy one may answer ThrottledOp. With any error there is no watch."""
        if error:
            if frame:  # else the connection broke, and nothing is known of the server
                self._session.no_kept_watches(multi.reason(error))
            self.fail()

    def _ask(self, index: int) -> Call:
        read, path = self.reads[index], self._paths[index]
        kept = self._kept[index] = read.watch and self._watches.kept(path)
        op = Op.GET_DATA if read.kind is Kind.DATA else Op.GET_CHILDREN
        return Call(op, jute.path_watch(path, read.watch and not kept), partial(self._answer, index))

    def _look(self, index: int) -> Call:
        """Return the request that leaves a watch on a missing node, since a read that fails leaves none."""
        if self._watches.kept(self._paths[index]):
            return self._ask(index)
        return Call(Op.EXISTS, jute.path_watch(self._paths[index], True), partial(self._looked, index))

    def _answer(self, index: int, error: int, frame: bytes, offset: int) -> None:
        read = self.reads[index]
        if error == NO_NODE and read.watch and not self._kept[index]:
            self._again(lambda: [self._look(index)])
        elif error:
            self._refused(index, error)
        elif read.kind is Kind.DATA:
            data, stat, _ = jute.read_data(frame, offset)
            self._settle(index, Node(read.path, read.kind, stat, data))
        else:
            names, stat = jute.read_children(frame, offset)
            self._settle(index, Node(read.path, read.kind, stat, children=names))

    def _looked(self, index: int, error: int, _frame: bytes, _offset: int) -> None:
        if not error:
            self._again(lambda: [self._ask(index)])  # it was created in between
        else:
            self._refused(index, error)

    def _bulk(self, first: int, size: int, error: int, frame: bytes, offset: int) -> None:
        if error:
            if error == UnimplementedError.code:
                self._session.no_multi_read()
            elif error == TOO_LARGE:  # it may be all together, or one of them: single requests will show it
                self._session.multi_read = False
            self.fail()
            return
        there: dict[int, Node] = {}
        missing: list[int] = []
        kinds = [read.kind for read in self.reads[first : first + size]]
        for index, answer in enumerate(multiread.answers(frame, offset, kinds), start=first):
            read = self.reads[index]
            ordinary = read.watch and not self._kept[index]
            node = Node(read.path, read.kind, answer.stat, answer.data, answer.children)
            if not answer.code and ordinary:
                there[index] = node
            elif not answer.code:
                self._settle(index, node)
            elif answer.code == NO_NODE and ordinary:
                missing.append(index)
            else:
                self._refused(index, answer.code)
        if there or missing:
            zxid: int = jute.REPLY.unpack_from(frame)[1]
            if self._over or not self._session.send(partial(self._leave_watches, zxid, there, missing)):
                self.fail()

    def _leave_watches(self, zxid: int, there: dict[int, Node], missing: list[int]) -> list[Call]:
        """Return the requests for the watches of the answered nodes. A node whose watch the server has kept since then
        is read once more."""
        kept = [index for index in (*there, *missing) if self._watches.kept(self._paths[index])]
        calls = [self._ask(index) for index in kept]
        there = {index: node for index, node in there.items() if index not in kept}
        missing = [index for index in missing if index not in kept]
        if there or missing:
            body = jute.watches(zxid, [self._paths[n] for n in there], [self._paths[n] for n in missing])
            calls.append(Call(Op.SET_WATCHES, body, partial(self._watched, there, missing)))
        return calls

    def _watched(self, there: dict[int, Node], missing: list[int], error: int, _frame: bytes, _offset: int) -> None:
        if error:
            self.fail()
            return
        for index, node in there.items():
            self._settle(index, node)
        for index in missing:
            self._refused(index, NO_NODE)

    def _refused(self, index: int, error: int) -> None:
        if error == NO_NODE:
            self._settle(index, Node(self.reads[index].path, self.reads[index].kind, None))
            return
        why = _UNREADABLE.get(error)
        if why is None:
            self.fail()
            return
        read = self.reads[index]
        if read.watch:
            self._watches.refused(self._paths[index])
        self._unreadable[index] = Unreadable(read.path, read.kind, why, breaks_link=error == TOO_LARGE)
        self._one_less()

    def _again(self, make: Callable[[], Sequence[Call]]) -> None:
        self._rounds += 1
        if self._over or self._rounds > ROUNDS_MAX * len(self.reads) or not self._session.send(make):
            self.fail()

    def _settle(self, index: int, node: Node) -> None:
        invariant(self._nodes[index] is None, f"{node.path} was answered twice")
        self._nodes[index] = node
        if self.reads[index].watch:
            self._watches.answered(self._paths[index], node.kind)
        self._one_less()

    def _one_less(self) -> None:
        """Count one answer, and report when all have come."""
        self._left -= 1
        if not self._left and not self._over:
            self._over = True
            nodes = tuple(node for node in self._nodes if node is not None)
            self._session.post(ReadDone(self.token, nodes, tuple(self._unreadable.values())))


def _ignore(_error: int, _frame: bytes, _offset: int) -> None:
    """The server may have no watch there. It has none afterwards in any case."""
