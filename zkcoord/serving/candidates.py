"""The other candidates and their protocols. They decide which protocol all groups are sent."""

from __future__ import annotations

from zkcoord.serving.election import Election
from zkcoord.serving.topics import Problem
from zkcoord.shell.tracker import Tracker
from zkcoord.tree.paths import CANDIDATES
from zkcoord.tree.snapshot import Kind, Node

APART = "the two cannot take over from one another; run only coordinators that speak what the members speak"


def follow_candidates(election: Election, node: Node, tracker: Tracker, problem: Problem) -> tuple[int, int]:
    """Take in a node about the candidates, and follow all of them. Returns the lowest and the highest protocol that all
    of them speak. Each candidate is read in a scope of its own, so that one that cannot be read stops nothing."""
    if node.kind is Kind.CHILDREN:
        fresh, gone = election.candidate_changes()
        for path in fresh:
            tracker.want(path, watch=True, scope=path)
        for path in gone:
            tracker.unwant(path)
            problem(path, None)
    protocols, left = election.protocols()
    for name, _ in election.others():
        problem(f"{CANDIDATES}/{name}", left.get(name) and f"coordinator {name} {left[name]}: {APART}")
    return protocols
