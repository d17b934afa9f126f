"""How a consumer becomes a member: it creates the parents, then the channel, then sets the status and creates the
registration in one multi.

Where groups must be adopted, nothing is written before the group is adopted. Each of these multis checks the version of
the record that says so. So a release of the group and a join exclude each other.

Each step is decided from the nodes that were read, so a step with an unknown outcome needs no care: its nodes exist or
they do not. The last step is the exception. A registration that is missing after an unknown outcome may have existed,
have been given partitions, and have been removed by somebody. So its name is not used again (rule 1).
"""

from __future__ import annotations

from zkcoord.errors import CorruptError
from zkcoord.shell.ports import Outcome
from zkcoord.shell.tracker import Tracker
from zkcoord.tree import member
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.record import record_in
from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import CheckNode, CreateNode, Transaction

JOIN = "join"  # the scope


class Joining:
    """The steps of one session to its registration."""

    def __init__(self, paths: MemberPaths, session_id: int, registration: bytes, tracker: Tracker) -> None:
        self._paths, self._session_id, self._registration, self._tracker = paths, session_id, registration, tracker
        self._nodes: dict[str, Node | None] = {}
        self._sent = False  # True when the registration was sent last
        self.waits_for: str | None = None  # why nothing is written yet, and who must act
        self.spent = False
        # True once the name is, or may have been, registered: if this session does not own it, a new name is needed

    def take(self, node: Node) -> None:
        """Take in a node that was read."""
        if node.path in self._nodes:
            self._nodes[node.path] = node
            self.spent |= node.path == self._paths.registration and node.exists

    @property
    def clean(self) -> bool:
        """True when everything wanted so far has been read."""
        return self._tracker.clean(JOIN)

    def end(self) -> None:
        """The consumer is a member: stop following the nodes of this scope."""
        self._tracker.unwant_scope(JOIN)

    def registered(self) -> bool:
        """True when the registration stands and belongs to this session."""
        node = self._nodes.get(self._paths.registration)
        return node is not None and node.stat is not None and node.stat.ephemeral_owner == self._session_id

    def answered(self, outcome: Outcome) -> None:
        """Take in the outcome of the transaction that was sent last."""
        self.spent = self.spent or (self._sent and outcome is not Outcome.REFUSED)

    def next_transaction(self, status: bytes) -> Transaction | None:
        """The next transaction, once `clean`. None: something must be read first, or the group is not adopted."""
        self._sent = False
        paths, layout = self._paths, self._paths.layout
        if layout.adopts and not self._read([layout.record(paths.group)], watch=True):
            return None
        adopted = self._adopted() if layout.adopts else ()
        if adopted is None:
            return None
        above = paths.above()
        if not self._read([*above, paths.channel, paths.registration]):
            return None
        parents = member.make_parents([node for node in map(self._nodes.get, above) if node is not None], layout)
        if parents is not None:
            return Transaction(writes=(*adopted, *parents.writes), why=parents.why)
        channel = self._nodes[paths.channel]
        if channel is None or channel.stat is None:
            return Transaction(writes=(*adopted, CreateNode(paths.channel)), why="channel")
        self._sent = True
        join = member.join(paths, self._registration, status, channel.stat.version)
        return Transaction(writes=(*adopted, *join.writes), why=join.why)

    def _read(self, paths: list[str], *, watch: bool = False) -> bool:
        """True when all of these paths have been read. Otherwise they are wanted from now on."""
        unread = [path for path in paths if path not in self._nodes]
        for path in unread:
            self._nodes[path] = None
            self._tracker.want(path, watch=watch, scope=JOIN)
        return not unread

    def _adopted(self) -> tuple[CheckNode] | None:
        """The check that the group is still adopted. None: it is not adopted, and its record is watched."""
        group = self._paths.group
        node = self._nodes[self._paths.layout.record(group)]
        self.waits_for = (
            f"group {group} is not adopted: whoever runs its old consumers runs `zkcoord group adopt {group}`"
        )
        if node is None or node.stat is None:
            return None
        try:
            record = record_in(node)
        except CorruptError as error:
            self.waits_for = str(error)
            return None
        if record is None or record.adoption is None:
            return None
        self.waits_for = None
        return (CheckNode(node.path, node.stat.version),)
