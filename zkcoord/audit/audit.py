"""The audit over time: a suspicion that lasts is a finding; lag is judged over a window. Pure; one call per reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zkcoord.audit.checks import Suspicion, suspicions
from zkcoord.audit.lag import LagReading, Verdict, verdict, within
from zkcoord.audit.seen import Seen
from zkcoord.core.model import TopicPartition
from zkcoord.core.severity import Severity

Key = tuple[str, str, str]
"""The identity of a suspicion: check, group, subject."""
Place = tuple[str, TopicPartition]

LAG = {
    Verdict.ERR: ("offset-outside", Severity.ERR, "the offset {0.offset} is not in the log, {0.start} to {0.end}"),
    Verdict.STALL: ("lag-stall", Severity.ERR, "offset {0.offset} is committed again and again, {0.lag} are left"),
    Verdict.STOP: ("lag-stop", Severity.ERR, "nothing is committed since offset {0.offset}, {0.lag} are left"),
    Verdict.WARN: ("lag-warn", Severity.WARN, "the lag grows: {0.lag} are left"),
}
TODO = {
    Verdict.ERR: "reading goes on by the reset policy; `zkcoord group reset-offsets` sets the offset",
    Verdict.STALL: "look at the consumer: it commits, and does not get on",
    Verdict.STOP: "look at the consumer: does it run, and does it hang",
    Verdict.WARN: "start more consumers, or make them faster",
}


@dataclass(frozen=True, slots=True)
class Audit:
    """The state of the audit after some readings. `after` returns the state after the next one."""

    patience_ms: int
    window_ms: int
    readings: int = 0
    findings: tuple[Suspicion, ...] = ()  # suspicions that have lasted, and partitions whose lag is judged as bad
    undecided: int = 0  # suspicions that have not lasted long enough, and partitions whose lag is not judged yet
    verdicts: Mapping[Place, Verdict] = field(default_factory=dict)
    lags: Mapping[Place, int] = field(default_factory=dict)
    _known: Mapping[Key, int] = field(default_factory=dict)  # suspicion -> time of its first reading
    _readings: Mapping[Place, tuple[LagReading, ...]] = field(default_factory=dict)

    def after(self, groups: Sequence[Seen], now_ms: int) -> Audit:
        """Take in one reading of all groups."""
        readings = self._lag_readings(groups, now_ms)
        verdicts = {place: verdict(each, self.window_ms) for place, each in readings.items()}
        found = [each for seen in groups for each in suspicions(seen)]
        known = {each.key: self._known.get(each.key, now_ms) for each in found}
        lasting = [
            each
            for each in found
            if now_ms - known[each.key] >= (self.patience_ms + each.longer_ms if each.lasts else 0)
            and each.key in self._known
        ]
        judged = {place: each for place, each in verdicts.items() if each is not None}
        behind = [_of_lag(place, each, readings[place][-1]) for place, each in judged.items() if each in LAG]
        return Audit(
            self.patience_ms,
            self.window_ms,
            self.readings + 1,
            tuple(sorted([*lasting, *behind], key=lambda each: each.key)),
            len(found) - len(lasting) + sum(each is None for each in verdicts.values()),
            judged,
            {place: each[-1].lag for place, each in readings.items()},
            known,
            readings,
        )

    def _lag_readings(self, groups: Sequence[Seen], now_ms: int) -> dict[Place, tuple[LagReading, ...]]:
        """Return the readings of lag, only of partitions with a living owner: no member has to read other ones now."""
        found = {}
        for seen in groups:
            view = seen.report.view
            living = view.living_threads()
            for partition, offset in seen.offsets.items():
                owner, log = view.owners.get(partition), seen.logs.get(partition)
                if log is None or owner is None or owner.thread not in living:
                    continue
                place = (view.group, partition)
                reading = LagReading(now_ms, offset.offset, log.start, log.end, offset.commit)
                found[place] = within((*self._readings.get(place, ()), reading), self.window_ms)
        return found


def _of_lag(place: Place, found: Verdict, last: LagReading) -> Suspicion:
    check, severity, what = LAG[found]
    return Suspicion(check, place[0], str(place[1]), what.format(last), TODO[found], severity)
