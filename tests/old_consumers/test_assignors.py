"""What old members settle on, as zkcoord computes it, against the assignors in Kafka's own jars: random groups."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.old_consumers.vectors import Case, random_vectors
from zkcoord.embedded.artifacts import OLD_KAFKA_VERSIONS
from zkcoord.legacy.cases import read_cases
from zkcoord.legacy.planning import plan_of

pytestmark = pytest.mark.legacy

CASES, CASES_LONG = 400, 5_000
SHOWN_MAX = 5


def planned(vectors: list[Case]) -> list[dict[str, dict[str, str]] | None]:
    """Topic -> partition -> thread for each case, as zkcoord plans it; None where it sees that they never settle."""
    cases = read_cases(json.dumps(vectors))
    assert isinstance(cases, list)
    found: list[dict[str, dict[str, str]] | None] = []
    for case in cases:
        owners = plan_of(case.group).owners
        shares: dict[str, dict[str, str]] | None = None if owners is None else {}
        for partition, thread in sorted((owners or {}).items()):
            assert shares is not None
            shares.setdefault(partition.topic, {})[str(partition.partition)] = thread
        found.append(shares)
    return found


def differing(vectors: list[Case]) -> list[Case]:
    """The first few cases in which zkcoord says something else, each with both answers."""
    pairs = zip(vectors, planned(vectors), strict=True)
    return [{**vector, "zkcoord": plan} for vector, plan in pairs if vector.get("owners") != plan][:SHOWN_MAX]


@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_random_groups_are_planned_as_the_real_assignors_plan_them(version: str) -> None:
    vectors = random_vectors(version, seed=1, count=CASES)
    assert differing(vectors) == []
    kinds = Counter((vector["strategy"], "owners" in vector, vector["hash_tie"]) for vector in vectors)
    assert len(kinds) == 8  # each strategy, settled and not, with ties and without, occurs


@pytest.mark.long
@pytest.mark.parametrize("version", OLD_KAFKA_VERSIONS)
def test_thousands_of_random_groups_are_planned_as_the_real_assignors_plan_them(version: str) -> None:
    assert differing(random_vectors(version, seed=2, count=CASES_LONG)) == []
