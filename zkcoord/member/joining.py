"""How a consumer becomes a member: the parents, the channel, then status and registration in one multi.

Each step is decided from what was read, so an unknown outcome is nothing special: the nodes stand, or they do not. But
for the last: a registration that does not stand afterwards may have stood, been given partitions, and been removed by
somebody, and no name is used twice (rule 1).
"""

from __future__ import annotations

from zkcoord.shell.ports import Outcome
from zkcoord.shell.tracker import Tracker
from zkcoord.tree import member
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.snapshot import Node
from zkcoord.tree.writes import CreateNode, Transaction

JOIN = "join"  # the scope


class Joining:
    """The way of one session to its registration."""

    def __init__(self, paths: MemberPaths, session_id: int, registration: bytes, tracker: Tracker) -> None:
        self._paths, self._session_id, self._registration, self._tracker = paths, session_id, registration, tracker
        self._nodes: dict[str, Node | None] = {}
        self._sent = False  # what was sent last is the registration
        self.spent = False  # the name is, or perhaps was, registered: if not by this session now, there must be another

    def take(self, node: Node) -> None:
        """Take an answer in."""
        if node.path in self._nodes:
            self._nodes[node.path] = node
            self.spent |= node.path == self._paths.registration and node.exists

    @property
    def clean(self) -> bool:
        """True when everything wanted so far has been read."""
        return self._tracker.clean(JOIN)

    def end(self) -> None:
        """A member: nothing of it is followed any more."""
        self._tracker.unwant_scope(JOIN)

    def registered(self) -> bool:
        """True when the registration stands and belongs to this session."""
        node = self._nodes.get(self._paths.registration)
        return node is not None and node.stat is not None and node.stat.ephemeral_owner == self._session_id

    def answered(self, outcome: Outcome) -> None:
        """What was sent last has this outcome."""
        self.spent = self.spent or (self._sent and outcome is not Outcome.REFUSED)

    def next_transaction(self, status: bytes) -> Transaction | None:
        """What to write next, once `clean`; None: something more is to be read first."""
        self._sent = False
        above = self._paths.above()
        unread = [path for path in (*above, self._paths.channel, self._paths.registration) if path not in self._nodes]
        if unread:
            for path in unread:
                self._nodes[path] = None
                self._tracker.want(path, scope=JOIN)
            return None
        parents = member.make_parents([node for node in map(self._nodes.get, above) if node is not None])
        if parents is not None:
            return parents
        channel = self._nodes[self._paths.channel]
        if channel is None or channel.stat is None:
            return Transaction(writes=(CreateNode(self._paths.channel),), why="channel")
        self._sent = True
        return member.join(self._paths, self._registration, status, channel.stat.version)
