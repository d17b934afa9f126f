"""A group of old consumers (Kafka 0.8 to 1.1, the real jars) alone, half zkcoord's, and all zkcoord's, in one run.

    python benchmarks/legacy.py [--quick] [--json FILE] [--runs N] [--point N,P] [--old-version V]

alone, half: the real old consumers (`old_group.py`), alone or beside as many of zkcoord's, with a coordinator. The
member that joins, and the one that dies, are old ones. all: `zkcoord.Consumer`s as in `handover.py`, in the layout
legacy; draft: the same in the layout draft; floor: what the draft layout's protocol costs by itself (`floor.py`). The
kinds alternate; medians are compared.

    join      t0: the joiner's registration; N members to N + 1
    death     t0: a member's registration is gone, with its session, which it did not end itself; N members to N - 1
    t1        alone, half: once ZooKeeper is silent and every partition is owned as the range assignor has it, the last
              write of an owner or an offset (ZooKeeper's time): the last claim, or the last start that one of zkcoord's
              members acknowledged. all, draft: the last start acknowledged, from the members' logs
    requests  packets that ZooKeeper received from just before the event until it was silent, less the questions asked
              here, and less pings and lease syncs of zkcoord's processes

Ends with one line a measure: `measure value goal ok|short`. Ratios are to the old members alone; `legacy_over_draft`
and `legacy_over_floor` are the hand-over of the layout legacy over that of the layout draft, and over its floor.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from statistics import median

from common import SESSION_TIMEOUT_MS, Child, repeated
from floor import fresh_tree, run_floor
from handover import Product
from members import Members, OneCoordinator
from old_group import Event, Observer, OldMembers, legacy_tree
from verdict import OUT, Measure, conclude

from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.tree.paths import DRAFT, LEGACY

POINTS = ((10, 1_000), (50, 1_000))
QUICK_POINTS = ((10, 1_000),)
EVENTS = ("join", "death")
ALL_TIME, ALL_REQUESTS, HALF_TIME, OVER_DRAFT = 0.1, 0.05, 1.0, 1.5
"""The goals. A group of zkcoord's members takes a tenth of the time of old members and a twentieth of their requests. A
mixed group is not slower than old members. The layout legacy takes at most 1.5 times as long as the layout draft."""

Run = dict[str, Event]


class Bench:
    """One server, and each kind of group on it."""

    def __init__(self, server: EmbeddedZooKeeper, version: str) -> None:
        self._server, self._version = server, version

    def alone(self, name: str, members: int, partitions: int) -> Run:
        """Old members alone."""
        with (
            tempfile.TemporaryDirectory() as folder,
            legacy_tree(self._server.hosts, name, self._version, partitions) as address,
            closing(Observer(self._server, address, partitions)) as observer,
            closing(OldMembers(address, self._version, Path(folder))) as old,
        ):
            _start(observer, lambda: old.join(members))
            return _observed(observer, old)

    def half(self, name: str, members: int, partitions: int) -> Run:
        """Half old members, half zkcoord's, and a coordinator."""
        with (
            tempfile.TemporaryDirectory() as folder,
            legacy_tree(self._server.hosts, name, self._version, partitions) as address,
            closing(Observer(self._server, address, partitions)) as observer,
            closing(OldMembers(address, self._version, Path(folder))) as old,
            closing(Child(OneCoordinator, address, LEGACY.name)) as coordinator,
            closing(Child(Members, address, LEGACY.name)) as ours,
        ):
            coordinator.ask("serving")
            _start(observer, lambda: old.join(members - members // 2))
            _start(observer, lambda: ours.ask("join", members // 2))

            def apart() -> int:
                return int(ours.ask("apart") + coordinator.ask("pings"))

            return _observed(observer, old, apart)

    def all(self, name: str, members: int, partitions: int) -> Run:
        """zkcoord's members only, in the layout legacy."""
        with (
            legacy_tree(self._server.hosts, name, self._version, None) as address,
            closing(Product(self._server, address, members, partitions, LEGACY.name)) as product,
        ):
            return _handed_over(product)

    def draft(self, name: str, members: int, partitions: int) -> Run:
        """The same in the layout draft."""
        with (
            fresh_tree(self._server.hosts, name) as (address, _),
            closing(Product(self._server, address, members, partitions, DRAFT.name)) as product,
        ):
            return _handed_over(product)

    def floor(self, name: str, members: int, partitions: int) -> Run:
        """What the layout draft costs by itself."""
        measured = run_floor(self._server.hosts, name, members, partitions)
        return {event: Event(settled_ms=measured[event].settled_ms, requests=0) for event in EVENTS}


def _start(observer: Observer, join: Callable[[], object]) -> None:
    before = observer.watch()
    join()
    observer.settled(before)


def _observed(observer: Observer, old: OldMembers, apart: Callable[[], int] = lambda: 0) -> Run:
    """An old member joins, and one dies."""
    found = {}
    for event, act in (("join", lambda: old.join(1)), ("death", old.die)):
        before, before_apart = observer.watch(), apart()
        act()
        found[event] = observer.settled(before).less(apart() - before_apart)
    return found


def _handed_over(product: Product) -> Run:
    """The topic appears; then a member joins, and one dies."""
    product.cold()
    found = {}
    for event, act in (("join", product.join), ("death", product.death)):
        measured = act()
        found[event] = Event(settled_ms=measured.settled_ms, requests=measured.requests or 0)
    return found


def compare(where: str, runs: dict[str, list[Run]]) -> list[Measure]:
    """A point's measures."""
    measures = []
    for event in EVENTS:
        ms = {kind: median(run[event].settled_ms for run in each) for kind, each in runs.items()}
        asked = {kind: median(run[event].requests for run in each) for kind, each in runs.items()}
        shown = [f"{kind} {ms[kind]:.0f} ms" + f", {asked[kind]:.0f} requests" * (asked[kind] > 0) for kind in runs]
        print(f"{where} {event}: {'  '.join(shown)}")
        measures += [
            Measure(f"old_{event}_{where}_ms", ms["alone"]),
            Measure(f"old_{event}_{where}_requests", asked["alone"]),
            Measure(f"half_{event}_{where}_time", ms["half"] / ms["alone"], HALF_TIME, at_most=True),
            Measure(f"half_{event}_{where}_requests", asked["half"] / asked["alone"]),
            Measure(f"all_{event}_{where}_time", ms["all"] / ms["alone"], ALL_TIME, at_most=True),
            Measure(f"all_{event}_{where}_requests", asked["all"] / asked["alone"], ALL_REQUESTS, at_most=True),
            Measure(f"legacy_over_draft_{event}_{where}", ms["all"] / ms["draft"], OVER_DRAFT, at_most=True),
            Measure(f"legacy_over_floor_{event}_{where}", ms["all"] / ms["floor"]),
        ]
    return measures


def _plain(run: Run) -> dict[str, dict[str, float]]:
    return {event: asdict(each) for event, each in run.items()}


def main() -> int:
    """Run the kinds of groups in turns, compare them, and print."""
    parser = repeated("A group of old consumers alone, half zkcoord's, and all zkcoord's.")
    parser.add_argument("--old-version", choices=OLD_KAFKA_VERSIONS, default=OLD_KAFKA_VERSIONS[-1], help="of the jars")
    chosen = parser.parse_args()
    count = chosen.runs or (1 if chosen.quick else 5)
    measures, raw = [], {}
    with EmbeddedZooKeeper(max_session_timeout_ms=2 * SESSION_TIMEOUT_MS, jvm_options=LONG_LIVED) as server:
        bench = Bench(server, chosen.old_version)
        kinds = {"alone": bench.alone, "half": bench.half, "all": bench.all, "draft": bench.draft, "floor": bench.floor}
        for kind, play in kinds.items() if not chosen.quick else ():
            play(f"warm-{kind}", 2, 100)
        for members, partitions in chosen.point or (QUICK_POINTS if chosen.quick else POINTS):
            where = f"{members}x{partitions}"
            runs: dict[str, list[Run]] = {kind: [] for kind in kinds}
            for number in range(count):
                for kind, play in kinds.items():
                    runs[kind].append(play(f"{kind}-{where}-{number}", members, partitions))
                print(f"{where}-{number}: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
            measures += compare(where, runs)
            raw[where] = {
                kind: [{name: asdict(e) for name, e in run.items()} for run in each] for kind, each in runs.items()
            }
    print()
    details = {"runs": count, "old_version": chosen.old_version, "raw": raw}
    return conclude(measures, details, chosen.json or OUT / "legacy.json")


if __name__ == "__main__":
    sys.exit(main())
