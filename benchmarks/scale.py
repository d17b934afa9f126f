"""One coordinator and thousands of members: times, CPU, memory and requests of the coordinator.

    python benchmarks/scale.py [--quick] [--json FILE] [--point G,M,P]

Real ZooKeeper; two real coordinators, each a process; members are `crowd.py`'s, over a few sessions in a third process
(so on two cores all of them share what the coordinator could have alone). A point is groups, members and partitions;
the last two are the totals.

    cold      all members and topics stand, then the coordinator is started: from its election to every group Stable
    join      one member more of one group: from the reply to its registration to Stable
    death     one member's session ends: from its registration gone to Stable
    failover  the serving coordinator ends: from its node gone until the standby has every group Stable
    memory    the most that a coordinator's process ever had (resident, MB); CPU: its seconds for the event
    requests  what the server received from everybody during the event

After each event every partition has one living owner and shares differ by one at most, or the run fails.
Ends with one line a measure: `measure value goal ok|short`; goals stand for 5,000 members and 100,000 partitions only.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import sys
import threading
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from common import DEADLINE_S, SESSION_TIMEOUT_MS, Child, now_ns, wholes
from crowd import Crowd
from members import Seen
from verdict import OUT, Measure, arguments, conclude

from zkcoord import Coordinator
from zkcoord.cli.coordinator import COLLECTOR
from zkcoord.embedded import EmbeddedZooKeeper
from zkcoord.embedded.java import LONG_LIVED
from zkcoord.tree.paths import DRAFT

POINTS = ((1, 1_000, 10_000), (100, 1_000, 10_000), (1, 5_000, 100_000))
QUICK_POINTS = ((1, 200, 2_000), (20, 200, 2_000))
TOPIC_PARTITIONS_MAX = 1_000
SESSION_MEMBERS_MAX = 1_000
GOALS_AT = (1, 5_000, 100_000)
GOALS = {"cold_s": 10.0, "failover_s": 5.0, "memory_mb": 500.0}


class ScaleCoordinator:
    """A coordinator's process: it notes which groups are Stable, and measures its own cost."""

    def __init__(self, address: str, metrics: str | None = None) -> None:
        self._changed = threading.Condition()
        self._phases: dict[str, str] = {}
        self._stable_ns = 0
        self._elected_ns = 0
        Seen(self._take, logging.DEBUG)  # DEBUG also shows the phases in which groups are found
        gc.set_threshold(*COLLECTOR)  # as the coordinator's command does
        self._coordinator = Coordinator(address, session_timeout_ms=SESSION_TIMEOUT_MS, metrics=metrics)
        self._coordinator.start()

    def _take(self, at_ns: int, event: str, fields: Mapping[str, Any]) -> None:
        with self._changed:
            if event == "elected":
                self._elected_ns = at_ns
            elif event in ("rebalance_stable", "group_phase"):
                self._phases[fields["group"]] = fields["state"]
                self._stable_ns = at_ns
            else:
                return
            self._changed.notify_all()

    def standing(self) -> None:
        """Return once the coordinator runs, and so stands for election."""

    def elected(self) -> int:
        """Wait until it is elected; return when that was."""
        self._wait(lambda: self._elected_ns > 0, "not elected")
        return self._elected_ns

    def stable(self, groups: int, since_ns: int) -> int:
        """Wait until this number of groups is Stable, the last after this moment; return when that became Stable."""
        self._wait(
            lambda: self._stable_ns > since_ns and [*self._phases.values()].count("Stable") == groups,
            f"of {groups} groups",
        )
        return self._stable_ns

    def cost(self) -> tuple[float, float]:
        """Return the CPU seconds so far, and the largest resident size in MB."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024

    def stop(self) -> None:
        """Stop the coordinator; its node goes at once."""
        self._coordinator.stop()

    def close(self) -> None:
        """End the session."""
        self._coordinator.stop()

    def _wait(self, condition: Any, what: str) -> None:
        with self._changed:
            if not self._changed.wait_for(condition, DEADLINE_S):
                raise RuntimeError(f"{what}: {self._phases} {self._coordinator.error}")


class Scale:
    """One point: the same processes from the cold start to the failover."""

    def __init__(
        self, server: EmbeddedZooKeeper, groups: int, members: int, partitions: int, metrics: str | None = None
    ) -> None:
        self._server, self._groups, self._metrics = server, groups, metrics
        self._each, share = members // groups, partitions // groups
        self._topics: dict[str, dict[str, int]] = {}
        self._crowd = Child(Crowd, server.hosts)
        for number in range(groups):
            name = f"g{number}"
            whole, rest = divmod(share, TOPIC_PARTITIONS_MAX)
            counts = [TOPIC_PARTITIONS_MAX] * whole + ([rest] if rest else [])
            self._topics[name] = {f"{name}-t{n}": count for n, count in enumerate(counts)}
            self._crowd.ask("make_topics", self._topics[name])
        self._coordinator: Child | None = None
        self._standby: Child | None = None

    def run(self) -> dict[str, dict[str, float]]:
        """Play all events; return event -> its figures."""
        return {"cold": self._cold(), "join": self._join(), "death": self._death(), "failover": self._failover()}

    def _register(self, group: str, count: int, alone: bool = False) -> int:
        return int(self._crowd.ask("register", group, count, dict.fromkeys(self._topics[group], 1), alone))

    def _cold(self) -> dict[str, float]:
        """Register the members before a coordinator serves. An earlier coordinator has only made the tree."""
        with closing(Child(ScaleCoordinator, self._server.hosts)) as first:
            first.ask("elected")
            self._crowd.ask("gone", DRAFT.coordinator)
            first.ask("stop")
            self._crowd.ask("gone_ns")
        for group in self._topics:
            for begin in range(0, self._each, SESSION_MEMBERS_MAX):
                self._register(group, min(SESSION_MEMBERS_MAX, self._each - begin))
        self._coordinator = Child(ScaleCoordinator, self._server.hosts, self._metrics)
        before = self._requests()
        t0_ns = self._coordinator.ask("elected")
        return self._figures(self._coordinator, t0_ns, before, 0.0)

    def _join(self) -> dict[str, float]:
        """One more member joins, with a session of its own."""
        coordinator = self._serving()
        before, cpu = self._requests(), coordinator.ask("cost")[0]
        t0_ns = self._register("g0", 1, alone=True)
        return self._figures(coordinator, t0_ns, before, cpu)

    def _death(self) -> dict[str, float]:
        """The member that has joined dies."""
        coordinator = self._serving()
        before, cpu = self._requests(), coordinator.ask("cost")[0]
        t0_ns = int(self._crowd.ask("kill"))
        return self._figures(coordinator, t0_ns, before, cpu)

    def _failover(self) -> dict[str, float]:
        """The standby takes over."""
        coordinator = self._serving()
        self._standby = Child(ScaleCoordinator, self._server.hosts)
        self._standby.ask("standing")
        self._crowd.ask("gone", DRAFT.coordinator)
        before, cpu = self._requests(), self._standby.ask("cost")[0]
        coordinator.ask("stop")
        t0_ns = int(self._crowd.ask("gone_ns"))
        return self._figures(self._standby, t0_ns, before, cpu)

    def _serving(self) -> Child:
        if self._coordinator is None:
            raise RuntimeError("no coordinator was started")
        return self._coordinator

    def _figures(self, coordinator: Child, t0_ns: int, requests_before: int, cpu_before: float) -> dict[str, float]:
        stable_ns = coordinator.ask("stable", self._groups, t0_ns)
        cpu, memory_mb = coordinator.ask("cost")
        requests = self._requests() - requests_before
        self._crowd.ask("check")
        for group, topics in self._topics.items():
            total, least, most = self._crowd.ask("owned", group, topics)
            if total != sum(topics.values()) or most - least > 1:
                raise RuntimeError(f"{group}: {total} of {sum(topics.values())} owned, shares from {least} to {most}")
        return {
            "seconds": (stable_ns - t0_ns) / 1e9,
            "cpu_s": cpu - cpu_before,
            "memory_mb": memory_mb,
            "requests": requests,
        }

    def _requests(self) -> int:
        return int(self._server.mntr()["zk_packets_received"])

    def close(self) -> None:
        """End the processes, the coordinators first."""
        for child in (self._standby, self._coordinator, self._crowd):
            if child is not None:
                child.close()


def report(point: tuple[int, int, int], found: dict[str, dict[str, float]]) -> list[Measure]:
    """Print a point's table; return its measures."""
    measures = []
    goals: Mapping[str, float] = GOALS if point == GOALS_AT else {}
    groups, members, partitions = point
    where = f"{groups}x{members}x{partitions}"
    print(f"\n{where:<18} {'seconds':>8} {'CPU s':>7} {'MB':>6} {'requests':>9}")
    for event, row in found.items():
        print(
            f"{event:<18} {row['seconds']:>8.2f} {row['cpu_s']:>7.2f} {row['memory_mb']:>6.0f} {row['requests']:>9.0f}"
        )
        measures.append(Measure(f"{event}_{where}_s", row["seconds"], goals.get(f"{event}_s"), at_most=True))
    memory = max(row["memory_mb"] for row in found.values())
    return [*measures, Measure(f"memory_{where}_mb", memory, goals.get("memory_mb"), at_most=True)]


def main() -> int:
    """Each point on a server of its own."""
    parser = arguments("One coordinator and thousands of members.")
    where = "only this one: groups, members, partitions"
    parser.add_argument("--point", type=wholes(3), action="append", metavar="G,M,P", help=where)
    chosen = parser.parse_args()
    measures: list[Measure] = []
    raw = {}
    for point in chosen.point or (QUICK_POINTS if chosen.quick else POINTS):
        groups, members, partitions = point
        began_ns = now_ns()
        with (
            EmbeddedZooKeeper(max_session_timeout_ms=2 * SESSION_TIMEOUT_MS, jvm_options=LONG_LIVED) as server,
            closing(Scale(server, groups, members, partitions)) as scale,
        ):
            found = scale.run()
        print(f"{point}: {(now_ns() - began_ns) / 1e9:.0f} s, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
        measures += report((groups, members, partitions), found)
        raw["x".join(map(str, point))] = found
    print()
    return conclude(measures, {"raw": raw}, chosen.json or OUT / "scale.json")


if __name__ == "__main__":
    sys.exit(main())
