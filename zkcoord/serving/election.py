"""The election of a coordinator: the tree's first nodes, the candidate's node, the election itself, and its end.

The election and the new epoch are one multi (rule 5): check the schema, create the coordinator's node, raise the epoch.
Whether this program serves is read from the tree and never remembered: the coordinator's node belongs to this session,
or it does not (F2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zkcoord.core.eligibility import in_common
from zkcoord.errors import CorruptError, SchemaError
from zkcoord.tree.candidate import asked_to_resign, protocols_of, says_silent, with_silent
from zkcoord.tree.paths import CANDIDATES, EPOCH, FROM_KAFKA, KAFKA, LEGACY, SCHEMA, Layout
from zkcoord.tree.schema import (
    Schema,
    decode_epoch,
    decode_schema,
    encode_epoch,
    is_newer,
    old_consumers,
    switch_command,
)
from zkcoord.tree.snapshot import Kind, Node, Want
from zkcoord.tree.writes import CheckNode, CreateNode, SetNode, Transaction, Write

ID_MAX = 2**31 - 1

RESTORE = "an operator must restore it; who serves goes on, and nobody else is elected before"

FirstWrites = Callable[[Mapping[str, Node]], tuple[Write, ...]]
"""The first revision, as a pure function of the nodes that it reads (`zkcoord.migrate`)."""


@dataclass(slots=True)
class Election:
    """The election, as one session has read it. Only `take` changes what was read."""

    layout: Layout
    wanted_id: int | None  # None: the smallest free id
    description: bytes  # of this candidate: host, pid, version and protocols
    first_reads: tuple[str, ...]
    first_writes: FirstWrites
    revisions: tuple[str, ...]  # revisions of the trees that this program serves
    session_id: int
    nodes: dict[tuple[str, Kind], Node | None] = field(default_factory=dict)  # None: wanted, and not read yet
    candidate_id: int | None = None

    def wants(self) -> list[tuple[str, Kind, bool]]:
        """Return the nodes that the election needs: path, kind, and whether to leave a watch."""
        watched = [(path, Kind.DATA, True) for path in (SCHEMA, EPOCH, self.layout.coordinator)]
        first = [(path, Kind.DATA, False) for path in self.first_reads if path not in (SCHEMA, EPOCH)]
        wants = [*watched, *first]
        self.nodes.update({(path, kind): None for path, kind, _ in wants})
        self.nodes[CANDIDATES, Kind.CHILDREN] = None
        return wants

    @property
    def own_path(self) -> str:
        """Path of the node of the chosen id; "" before an id is chosen."""
        return "" if self.candidate_id is None else self.layout.candidate(self.candidate_id)

    def candidate_changes(self) -> tuple[list[str], list[str]]:
        """Compare the list of candidates with the known ones. Returns (paths of nodes to read and watch from now on,
        paths to forget)."""
        listed = self.nodes[CANDIDATES, Kind.CHILDREN]
        now = {f"{CANDIDATES}/{name}" for name in (listed.children if listed is not None else ())}
        known = {path for path, _ in self.nodes if path.startswith(f"{CANDIDATES}/")}
        gone = sorted(known - now - {self.own_path})
        for path in gone:
            del self.nodes[path, Kind.DATA]
        fresh = sorted(now - known)
        self.nodes.update({(path, Kind.DATA): None for path in fresh})
        return fresh, gone

    def others(self) -> list[tuple[str, tuple[int, int]]]:
        """The ids and protocols of the other candidates, oldest first. A candidate that was not read yet counts as one
        that names no protocol."""
        found = []
        for (path, _), node in self.nodes.items():
            if not path.startswith(f"{CANDIDATES}/"):
                continue
            stat = node.stat if node is not None else None
            if (stat.ephemeral_owner == self.session_id) if stat is not None else path == self.own_path:
                continue
            found.append((_czxid(node), path.rpartition("/")[2], protocols_of(node.data if node is not None else b"")))
        return [(name, protocols) for _, name, protocols in sorted(found)]

    def protocols(self) -> tuple[tuple[int, int], dict[str, str]]:
        """The protocols that all coordinators speak, and the coordinators that share none with the others: id ->
        reason."""
        return in_common(protocols_of(self.description), self.others())

    def obstacle(self) -> str | None:
        """Why this candidate must not serve: it shares no protocol with a candidate that is older. None: it may
        serve."""
        _, left = self.protocols()
        own = _czxid(self._node(self.own_path))
        for name, why in left.items():
            if 0 < _czxid(self._node(f"{CANDIDATES}/{name}")) < own:
                return f"coordinator {name} {why}: waiting until it is gone; stop one of the two"
        return None

    def take(self, node: Node) -> bool:
        """Take in a node that was read. Returns False if it is not part of the election."""
        key = (node.path, node.kind)
        if key not in self.nodes:
            return False
        self.nodes[key] = node
        return True

    def schema(self) -> Schema | None:
        """The tree's schema; None for an empty tree. Raises SchemaError if this program must not serve the tree.

        Call it only while there are no `problems`.
        """
        node = self._node(SCHEMA)
        if node is None or node.stat is None:
            return None
        if is_newer(node.data):
            raise SchemaError(f"{SCHEMA} is in a newer format than this program reads: deploy the newer program")
        schema = decode_schema(node.data)
        if schema.layout != self.layout.name:
            raise SchemaError(
                f"the tree has the layout {schema.layout!r}, this coordinator was started with {self.layout.name!r}: "
                f"start it with --layout {schema.layout}"
            )
        if schema.migration is None and schema.topics != self.layout.source:
            raise SchemaError(another_source(schema.topics, self.layout.source))
        if schema.migration is None and schema.revision not in self.revisions:
            raise SchemaError(
                f"the tree is at revision {schema.revision}, this program serves {' and '.join(self.revisions)}: "
                "run `zkcoord migrate upgrade`, or deploy the newer program"
            )
        return schema

    def schema_seen(self) -> tuple[Schema, int] | None:
        """The schema and its node's version. None: it is missing, or cannot be read."""
        node = self._node(SCHEMA)
        try:
            return None if node is None or node.stat is None else (decode_schema(node.data), node.stat.version)
        except CorruptError:
            return None

    def serves(self, epoch: int | None = None) -> bool:
        """True when the coordinator's node belongs to this session, and the epoch was not raised above `epoch`.

        A migration raises the epoch. A deposed coordinator leaves its node at once then, even with nothing to write. An
        epoch that cannot be read ends no term.
        """
        node = self._node(self.layout.coordinator)
        try:
            if epoch is not None and decode_epoch(self._data(EPOCH)) > epoch:
                return False
        except CorruptError:
            pass
        return node is not None and node.stat is not None and node.stat.ephemeral_owner == self.session_id

    def won(self) -> bool:
        """True when the present epoch was written together with the coordinator's node, so by this election.

        A migration may have raised the epoch right after it. The migration's epoch belongs to no coordinator, and keeps
        all of them out.
        """
        node, epoch = self._node(self.layout.coordinator), self._node(EPOCH)
        return node is not None and epoch is not None and epoch.stat is not None and _czxid(node) == epoch.stat.mzxid

    def problems(self) -> dict[str, str | None]:
        """Path of schema or epoch -> what is wrong with it and who must act. None: nothing is wrong, or it was not read
        yet.

        Nobody can be elected while there is a problem. A readable schema that this program must not serve is no problem
        here: see `schema`.
        """
        found: dict[str, str | None] = dict.fromkeys((SCHEMA, EPOCH))
        schema, epoch = self._node(SCHEMA), self._node(EPOCH)
        try:
            if schema is not None and schema.exists and not is_newer(schema.data):
                decode_schema(schema.data)
        except CorruptError as error:
            found[SCHEMA] = f"{error}: {RESTORE}"
        try:
            if epoch is not None and epoch.exists:
                decode_epoch(epoch.data)
            elif epoch is not None and schema is not None and schema.exists:
                found[EPOCH] = f"it is missing: {RESTORE}"
        except CorruptError as error:
            found[EPOCH] = f"{error}: {RESTORE}"
        return found

    def standby_to(self) -> str | None:
        """The id of the coordinator that serves while this candidate stands by. None: nobody serves, or this candidate
        does."""
        own, serving = self._node(self.own_path), self._node(self.layout.coordinator)
        if own is None or not own.exists or serving is None or not serving.exists or self.id_taken() or self.serves():
            return None
        return serving.data.decode("utf-8", "replace")

    def epoch(self) -> tuple[int, int]:
        """The epoch and its node's version, as they were read. Call it only while there are no `problems`."""
        return decode_epoch(self._data(EPOCH)), self._version(EPOCH)

    def choose_id(self) -> str:
        """Choose an id to stand with. Returns the path of its node, which must be read and watched."""
        node = self.nodes.get((CANDIDATES, Kind.CHILDREN))
        taken = set(node.children) if node is not None else set()
        self.candidate_id = self.wanted_id
        if self.candidate_id is None:
            self.candidate_id = next(n for n in range(ID_MAX) if str(n) not in taken)
        path = self.layout.candidate(self.candidate_id)
        self.nodes.setdefault((path, Kind.DATA), None)
        return path

    def look_for_old_consumers(self) -> list[Want]:
        """The nodes of old consumers that must be read before the layout `draft` is set up, and are not wanted yet."""
        if self.layout.adopts or self.schema() is not None:
            return []
        listed = self.nodes.get((LEGACY.groups, Kind.CHILDREN))
        wanted = [Want(KAFKA), Want(LEGACY.groups, Kind.CHILDREN)]
        wanted += [Want(LEGACY.ids(group)) for group in (listed.children if listed is not None else ())]
        fresh = [want for want in wanted if (want.path, want.kind) not in self.nodes]
        self.nodes.update({(want.path, want.kind): None for want in fresh})
        return fresh

    def preparation(self) -> Transaction | None:
        """The next write before the election: the tree's first nodes, then the candidate's node. None: both exist.

        Raises SchemaError where old consumers use the tree, and the layout is not theirs.
        """
        if self.schema() is None:
            listed = self.nodes.get((LEGACY.groups, Kind.CHILDREN))
            paths = [LEGACY.ids(group) for group in (listed.children if listed is not None else ())]
            ids = [node for path in paths if (node := self._node(path)) is not None]
            brokers = self._node(KAFKA)
            if brokers is not None and (refusal := old_consumers(brokers, ids)) is not None:
                raise refusal
            by_path = {path: node for (path, kind), node in self.nodes.items() if node and kind is Kind.DATA}
            return Transaction(writes=self.first_writes(by_path), why="the tree's first revision")
        candidate = self._node(self.own_path)
        if self.candidate_id is None or (candidate is not None and candidate.exists):
            return None
        return Transaction(writes=(CreateNode(self.own_path, self.description, ephemeral=True),), why="candidate")

    def election(self) -> Transaction | None:
        """The multi that elects this candidate. None: wait, because somebody serves, a migration is in progress, or
        there is an `obstacle`."""
        schema, coordinator = self.schema(), self._node(self.layout.coordinator)
        if self.candidate_id is None or schema is None or schema.migration is not None:
            return None
        if coordinator is None or coordinator.exists or self.obstacle() is not None:
            return None
        epoch, version = self.epoch()
        return Transaction(
            writes=(
                CheckNode(SCHEMA, self._version(SCHEMA)),
                CreateNode(self.layout.coordinator, str(self.candidate_id).encode("ascii"), ephemeral=True),
                SetNode(EPOCH, encode_epoch(epoch + 1), version),
            ),
            why="election",
        )

    def asked_to_resign(self) -> str | None:
        """The person that asked this candidate to resign, by setting `resign` in its node with a tool. None: nobody
        asked."""
        node = self._node(self.own_path)
        if node is None or node.stat is None or node.stat.ephemeral_owner != self.session_id:
            return None
        return asked_to_resign(node.data)

    def saying_silent(self, *, silent: bool) -> Transaction | None:
        """The write that notes in this coordinator's own node whether the KRaft controllers are silent. None: the node
        says so already, or does not exist."""
        node = self._node(self.own_path)
        if node is None or node.stat is None or self.id_taken() or says_silent(node.data) is silent:
            return None
        said = SetNode(self.own_path, with_silent(node.data, silent=silent), node.stat.version)
        return Transaction(writes=(CheckNode(EPOCH, self._version(EPOCH)), said), why="controllers of KRaft")

    def id_taken(self) -> bool:
        """True when another session holds the chosen id."""
        node = self._node(self.own_path)
        return node is not None and node.stat is not None and node.stat.ephemeral_owner != self.session_id

    def id_problem(self) -> str | None:
        """Why this candidate cannot stand with the id that its user chose. None: it can."""
        if not self.id_taken():
            return None
        return f"another one has the id {self.wanted_id}: waiting until it is gone; choose another --id"

    def _node(self, path: str) -> Node | None:
        return self.nodes.get((path, Kind.DATA))

    def _data(self, path: str) -> bytes:
        node = self._node(path)
        return b"" if node is None else node.data

    def _version(self, path: str) -> int:
        node = self._node(path)
        return -1 if node is None or node.stat is None else node.stat.version


def another_source(tree: str, own: str) -> str:
    """Say what to do when the tree's topics do not come from the source that this coordinator was started with."""
    options = "--topics kafka --bootstrap-servers HOST:PORT" if tree == FROM_KAFKA else "--topics zookeeper"
    return (
        f"the tree's topics come from {tree!r}, this coordinator was started with {own!r}: start it with {options}, or "
        f"run `{switch_command(own)}`"
    )


def _czxid(node: Node | None) -> int:
    """The zxid at which a node was created. 0: it does not exist, or was not read yet."""
    return node.stat.czxid if node is not None and node.stat is not None else 0
