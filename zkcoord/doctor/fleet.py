"""Judges zkcoord's own programs: the tree's revision, coordinators, groups, and timeouts that do not fit. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from zkcoord.core.severity import Severity
from zkcoord.core.view import Member
from zkcoord.core.words import count, some
from zkcoord.doctor.facts import CALLER, Finding, GroupFacts, TreeFacts

FLEET, GROUPS = "fleet", "groups"
COORDINATORS_MAX = 3
SKEW_MS = 60_000


def judge(tree: TreeFacts, groups: Sequence[GroupFacts], version: str) -> Iterator[Finding]:
    """Return all findings about zkcoord. `version`: the version of this program."""
    yield from _tree(tree)
    if tree.revision is not None:
        yield from _coordinators(tree, version)
        yield from _coordinators_clocks(tree)
    for each in groups:
        yield from _group(each)
        yield from _times(each)
        yield from _clocks(each)
        yield from _mixed(each)


def _tree(tree: TreeFacts) -> Iterator[Finding]:
    if tree.revision is None:
        remedy = "start `zkcoord coordinator`, or run `zkcoord migrate upgrade` as a user who may write"
        yield Finding(Severity.INFO, FLEET, "zkcoord is not here yet", "there is no /zkcoord/schema", remedy)
    elif tree.revision not in tree.served:
        evidence = f"revision {tree.revision}; this program serves {', '.join(tree.served)}"
        remedy = "run `zkcoord migrate upgrade`; if the revision is newer than this program, install its release"
        yield Finding(Severity.WARN, FLEET, "this program does not serve the tree's revision", evidence, remedy)
    else:
        yield Finding(Severity.OK, FLEET, "the tree's revision", tree.revision)


def _coordinators(tree: TreeFacts, version: str) -> Iterator[Finding]:
    known = tree.candidates
    hosts = Counter(str(each.get("host")) for each in known)
    versions = Counter(str(each.get("version")) for each in known)
    said = ", ".join(f"{each.get('host')} ({each.get('version')})" for each in known) or "none"
    if tree.serving is None:
        option = " with `--topics kafka`" if tree.from_kafka else ""
        remedy = f"start a coordinator{option}; if one runs, its log says what it waits for"
        yield Finding(Severity.ERR, FLEET, "no coordinator serves", f"standing: {said}", remedy)
    if len(known) == 1:
        remedy = "run a second one on another machine"
        yield Finding(Severity.WARN, FLEET, "nobody stands by", said, remedy)
    elif len(known) > COORDINATORS_MAX:
        yield Finding(Severity.INFO, FLEET, "there are more coordinators than gain anything", said, "two or three do")
    elif known and len(hosts) == 1:
        remedy = "run them on different machines"
        yield Finding(Severity.WARN, FLEET, "all coordinators are on one machine", said, remedy)
    elif known:
        yield Finding(Severity.OK, FLEET, "coordinators", said)
    if len(versions) > 1:
        remedy = "finish the deployment; the lowest protocol version counts until then"
        yield Finding(Severity.INFO, FLEET, "coordinators of different versions", said, remedy)
    elif known and version not in versions:
        remedy = "use tools of the fleet's version"
        what = f"this program is version {version}, the coordinators are not"
        yield Finding(Severity.INFO, FLEET, what, said, remedy, CALLER)


def _group(group: GroupFacts) -> Iterator[Finding]:
    name, see = group.group, f"see `zkcoord group describe {group.group} --state`"
    ours = sum(member.speaks_protocol for member in group.members)
    others = len(group.members) - ours
    evidence = f"{group.state}, {group.mode}, offsets in {group.store}, {count(ours, 'member')}"
    evidence += f" and {others} that do not speak the protocol" if others else ""
    if group.failed or group.quarantined or group.problems:
        parts = ["FAILED"] if group.failed else []
        parts += [f"{group.quarantined} partitions quarantined"] if group.quarantined else []
        parts += [f"{group.problems} nodes that cannot be read"] if group.problems else []
        yield Finding(Severity.ERR, GROUPS, f"group {name} is not well", ", ".join([evidence, *parts]), see)
    elif group.mode == "observe":
        yield Finding(Severity.WARN, GROUPS, f"group {name} is only observed", evidence, see)
    else:
        yield Finding(Severity.OK, GROUPS, f"group {name}", evidence)


def _times(group: GroupFacts) -> Iterator[Finding]:
    name, policy = group.group, group.policy
    members = [member for member in group.members if member.speaks_protocol]
    hasty = [m for m in members if m.rebalance_timeout_ms < m.session_timeout_ms]
    if hasty:
        evidence = _named(hasty, lambda m: f"{m.rebalance_timeout_ms} ms against {m.session_timeout_ms} ms")
        remedy = "a rebalance timeout longer than the longest batch, and than the session timeout"
        what = f"group {name}: rebalance timeouts are shorter than session timeouts"
        yield Finding(Severity.WARN, GROUPS, what, evidence, remedy)
    idle = [m for m in members if m.hold_ms and m.hold_ms < m.session_timeout_ms]
    if idle:
        evidence = _named(idle, lambda m: f"hold {m.hold_ms} ms, session {m.session_timeout_ms} ms")
        remedy = "hold longer than a restart takes"
        yield Finding(
            Severity.INFO, GROUPS, f"group {name}: static members are held for a short time", evidence, remedy
        )
    if policy.probe_interval_ms is not None and members:
        patience_ms = policy.probe_interval_ms * policy.max_probes
        longest_ms = max(m.rebalance_timeout_ms for m in members)
        if patience_ms < longest_ms // 2:
            evidence = (
                f"{policy.max_probes} probes every {policy.probe_interval_ms} ms; batches may take {longest_ms // 2} ms"
            )
            remedy = "probe less often, or more times: a long batch would count as dead"
            yield Finding(Severity.WARN, GROUPS, f"group {name}: probes outrun its batches", evidence, remedy)
    longest = max((m.session_timeout_ms for m in members), default=0)
    if policy.evict_grace_ms is not None and policy.evict_grace_ms < longest:
        evidence = f"evict_grace_ms={policy.evict_grace_ms}, session timeouts up to {longest} ms"
        remedy = f"`zkcoord group config {name} policy.evict_grace_ms=`; the longer of both counts"
        yield Finding(Severity.INFO, GROUPS, f"group {name}: its grace is shorter than sessions", evidence, remedy)


def _clocks(group: GroupFacts) -> Iterator[Finding]:
    skewed = {c: ms for c, ms in group.clock_ahead_ms.items() if abs(ms) > SKEW_MS}
    if skewed:
        evidence = some([f"{c} {ms / 1000:+.0f} s" for c, ms in sorted(skewed.items())])
        remedy = (
            "set the clocks (NTP): logs and timelines of different machines cannot be compared; no lease depends on it"
        )
        what = f"group {group.group}: {len(skewed)} members' clocks differ from ZooKeeper's"
        yield Finding(Severity.WARN, GROUPS, what, evidence, remedy)


def _coordinators_clocks(tree: TreeFacts) -> Iterator[Finding]:
    skewed = {name: ms for name, ms in tree.candidates_ahead_ms.items() if ms > SKEW_MS}
    if skewed:
        evidence = some([f"coordinator {name} {ms / 1000:+.0f} s or more" for name, ms in sorted(skewed.items())])
        remedy = "set the clocks (NTP): logs, journals and timelines cannot be compared; no decision depends on it"
        yield Finding(Severity.WARN, FLEET, "coordinators' clocks are ahead of ZooKeeper's", evidence, remedy)


def _mixed(group: GroupFacts) -> Iterator[Finding]:
    """Judge whether a group has consumers of different releases. A registration names no release, but the protocols
    that the consumer speaks; these differ between releases with different abilities."""
    protocols: dict[tuple[int, int], list[str]] = {}
    for member in group.members:
        if member.speaks_protocol:
            protocols.setdefault(member.protocols, []).append(member.consumer_id)
    if len(protocols) > 1:
        evidence = "; ".join(f"{low}-{high}: {some(names, 2)}" for (low, high), names in sorted(protocols.items()))
        remedy = "finish the deployment: what the oldest release cannot do is not used before"
        what = f"group {group.group}: consumers of different releases, by the protocols that they speak"
        yield Finding(Severity.INFO, GROUPS, what, evidence, remedy)


def _named(members: Sequence[Member], say: Callable[[Member], str]) -> str:
    return some([f"{m.consumer_id}: {say(m)}" for m in members])
