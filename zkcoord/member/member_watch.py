"""Which nodes a member follows: its registration, its channel, each command, and the owner and offset of each partition
that it holds or is about to start.

The member watches its registration, the list of its channel, its own claims (old consumers delete those), and, if it
commits to Kafka, its offsets (a tool may set one, and no write of the member would be refused). It watches no other
node. Those change only by the member's own write, whose reply tells the new state (`by_writes`), or by somebody else's
write, which makes the member's next write fail: then the node is read again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import ClaimPartitions, LetGo, LookUp, ReadAgain, WatchOffsets
from zkcoord.core.member.status import Held, MemberStatus
from zkcoord.core.member.view import MemberView
from zkcoord.core.model import TopicPartition
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.member import MemberPaths
from zkcoord.tree.member_view import Places, fold, follow, let_go, unread
from zkcoord.tree.paths import sequence_name
from zkcoord.tree.snapshot import Kind, Node

CHANNEL = "channel"  # scope of the member's own registration, channel and commands
LOOK_UP = "look-up "  # prefix of the scope of each look-up; its name follows


class MemberWatch:
    """The nodes of one registration. Invariant: exactly the partitions that were looked up and not let go are
    wanted."""

    def __init__(self, paths: MemberPaths, tracker: Tracker) -> None:
        self._paths, self._tracker = paths, tracker
        self.nodes = unread(paths)
        self._scopes: dict[TopicPartition, str] = {}
        self._owner_at: dict[str, TopicPartition] = {}  # of all partitions that have a scope
        self._offset_at: dict[str, TopicPartition] = {}
        self._held: Mapping[TopicPartition, Held] = {}  # as of the last decision
        self._claims: set[str] = set()  # paths of own claims, which are watched
        self._releasing: set[str] = set()  # those of `_claims` that are about to be released

    def begin(self) -> None:
        """Read and watch the own registration and channel from now on."""
        tracker, paths = self._tracker, self._paths
        tracker.want(paths.registration, watch=True, scope=CHANNEL)
        tracker.want(paths.channel, Kind.CHILDREN, watch=True, scope=CHANNEL, by_writes=True)
        tracker.want(paths.channel, scope=CHANNEL, by_writes=True)
        self._look_ahead(0)

    def read(self, answers: Sequence[Node]) -> None:
        """Take in the nodes that were read, and want the nodes that they lead to."""
        before = self.nodes
        self.nodes = after = fold(before, answers, Places(self._owner_at, self._offset_at))
        if self._releasing:
            self._watch_again(answers)
        if after.view.commands is before.view.commands and after.made == before.made:
            return
        known, commands = before.view.commands, after.view.commands
        for gone in known.keys() - commands.keys():
            self._tracker.unwant(self._paths.command(gone))
        for new in sorted(commands.keys() - known.keys()):
            if commands[new] is None:  # not read together with this list
                self._tracker.unwant(self._paths.command(new))
                self._tracker.want(self._paths.command(new), scope=CHANNEL, by_writes=True)
        if after.made != before.made:
            expected = sequence_name(before.made)
            if expected not in commands:
                self._tracker.unwant(self._paths.command(expected))
            self._look_ahead(after.made)

    def _look_ahead(self, number: int) -> None:
        """Have the next command read together with the list that shows it. Its name is known, since nobody else creates
        numbered nodes in this channel."""
        path = self._paths.command(sequence_name(number))
        self._tracker.want_later([path], CHANNEL, by_writes=True)
        self._tracker.read_beside(self._paths.channel, Kind.CHILDREN, [path])

    def look_up(self, decision: LookUp) -> None:
        """Read these partitions' nodes, and follow them from now on."""
        paths, partitions, known = self._paths, decision.partitions, decision.known
        again = [p for p in partitions if p in self._scopes]
        if again:
            self.let_go(LetGo(partitions=tuple(again)))
        scope = f"{LOOK_UP}{decision.name}"
        self._scopes.update(dict.fromkeys(partitions, scope))
        # these are claimed first, and their offsets are read after the claim
        free = {p for p, owner in known.items() if not owner.thread}
        # topics of held partitions have their parents already: this saves one round trip
        standing = {p.topic for p in self._held} if free else set[str]()
        above = self._above([p for p in partitions if p.topic not in standing]) if decision.parents else []
        owner_at = {paths.owner(p): p for p in partitions}
        offset_at = {paths.offset(p): p for p in partitions}
        self._owner_at.update(owner_at)
        self._offset_at.update(offset_at)
        owners: Collection[str] = owner_at
        offsets: Collection[str] = offset_at
        if known:
            self.nodes = follow(self.nodes, known)
            self._tracker.want_later([path for path, p in owner_at.items() if p in known], scope, by_writes=True)
            owners = [path for path, p in owner_at.items() if p not in known]
        if free:
            self._tracker.want_later([path for path, p in offset_at.items() if p in free], scope, by_writes=True)
            offsets = [path for path, p in offset_at.items() if p not in free]
        self._tracker.want_data([*above, *owners, *offsets], scope, by_writes=True)

    def _above(self, partitions: Sequence[TopicPartition]) -> list[str]:
        """The nodes above the owners and offsets of these partitions, outermost first."""
        return [*self._paths.above_claims(partitions), *self._paths.above_offsets(partitions)]

    def claiming(self, decision: ClaimPartitions) -> None:
        """Watch the claims that are about to be made, and read their offsets after them. If a claim was refused, read
        the nodes above it, too, since one may be missing."""
        claims = {self._paths.owner(p): p for p in decision.partitions}
        refused = [p for path, p in claims.items() if path in self._claims]
        if refused:
            self._tracker.want_data(self._above(refused), self._scopes[refused[0]], by_writes=True)
        self._claims.update(claims)
        for path, partition in claims.items():
            self._tracker.watch(path, Kind.DATA, True)
            self._tracker.touch(self._paths.offset(partition))

    def releasing(self, partitions: Collection[TopicPartition]) -> None:
        """Stop watching the own claims of these partitions, which are about to be released. The reply to the release
        tells that they are gone."""
        if not self._claims:
            return
        paths = [path for partition in partitions if (path := self._paths.owner(partition)) in self._claims]
        self._releasing.update(paths)
        for path in paths:
            self._tracker.watch(path, Kind.DATA, False)

    def _watch_again(self, answers: Sequence[Node]) -> None:
        """Watch a claim again if its release did not happen."""
        for node in answers:
            if node.path in self._releasing:
                self._releasing.discard(node.path)
                if node.exists:
                    self._tracker.watch(node.path, Kind.DATA, True)

    def read_again(self, decision: ReadAgain) -> None:
        """Read the followed nodes of these partitions again."""
        partitions = [p for p in decision.partitions if p in self._scopes]
        if decision.parents and partitions:
            self._tracker.want_data(self._above(partitions), self._scopes[partitions[0]], by_writes=True)
        for path in (*map(self._paths.owner, partitions), *map(self._paths.offset, partitions)):
            self._tracker.touch(path)

    def watch_offsets(self, decision: WatchOffsets) -> None:
        """Watch the offsets of these partitions, or stop watching them."""
        for partition in decision.partitions:
            self._tracker.watch(self._paths.offset(partition), Kind.DATA, decision.watch)

    def let_go(self, decision: LetGo) -> None:
        """Stop following these partitions."""
        partitions = [p for p in decision.partitions if self._scopes.pop(p, None) is not None]
        owners, offsets = ([path(p) for p in partitions] for path in (self._paths.owner, self._paths.offset))
        for owner, offset in zip(owners, offsets, strict=True):
            del self._owner_at[owner], self._offset_at[offset]
        self._claims.difference_update(owners)
        self._releasing.difference_update(owners)
        self._tracker.unwant_data(owners)
        self._tracker.unwant_data(offsets)
        if partitions:
            self.nodes = let_go(self.nodes, partitions)
        if decision.parents:
            self._tracker.unwant_data(self.nodes.parents)
            self.nodes = fast_replace(self.nodes, parents={})

    def saying(self, data: bytes, status: MemberStatus) -> None:
        """Note the status that is about to be sent."""
        self.nodes = fast_replace(self.nodes, sent=(data, status))

    def taken_in(self, held: Mapping[TopicPartition, Held]) -> None:
        """Note that a decision has seen everything that was read. `held` is what the member holds by that decision."""
        view = self.nodes.view
        if view.fresh or (held is not self._held and (view.owners or view.positions)):
            self.nodes = fast_replace(self.nodes, view=view.taken_in(held))
        self._held = held

    def unread(self) -> frozenset[str]:
        """The names of the look-ups of which a node is still to be read."""
        unclean: Collection[str] = self._tracker.unclean()
        if not unclean:
            return frozenset()
        return frozenset(scope.removeprefix(LOOK_UP) for scope in unclean if scope.startswith(LOOK_UP))

    @property
    def channel_read(self) -> bool:
        """True when registration, channel and commands have been read."""
        return self._tracker.clean(CHANNEL)

    @property
    def stands(self) -> bool:
        """True while the own registration is known to exist: it was read on the present link, after the link's sync,
        and neither its watch nor a refused write of its own says that it changed."""
        return not self.nodes.view.gone and self._tracker.watches(self._paths.registration)

    @property
    def unregistered(self) -> bool:
        """True once the own registration was seen to be gone. An eviction removes it, and leaves the mark `evicted`."""
        view: MemberView = self.nodes.view
        return self._paths.registration in view.missing or view.evicted
