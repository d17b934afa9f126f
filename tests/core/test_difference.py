"""The difference between owners and target, and the members that take part. Both are kept while their inputs are the
same, and computed again when an input changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.core.groups import T0, T1, T2, T3, altered, channel, group, member
from zkcoord.core.difference import Difference, KeptDifference, difference
from zkcoord.core.negotiation import Negotiation
from zkcoord.core.view import GroupView, Instance, Owner

KNOWN = ("sticky", "range")


def test_the_difference_names_misplaced_and_lacking_partitions() -> None:
    owners = {T0: Owner("a-0", 1), T1: Owner("a-0", 1), T2: Owner("", 3), T3: Owner("b-0", 1)}
    assert difference(owners, {T0: "a-0", T1: "b-0", T2: "b-0"}) == Difference(
        misplaced=((T1, "a-0"), (T3, "b-0")),
        lacking=((T1, "b-0"), (T2, "b-0")),
        owning=frozenset({"a-0", ""}),
    )


def test_another_target_or_other_owners_make_another_difference() -> None:
    owners, wanted = {T0: Owner("a-0", 1)}, {T0: "b-0"}
    known = KeptDifference().between(owners, wanted)
    assert known.between(owners, wanted) is known
    assert known.between(owners, {T0: "a-0"}).value == difference(owners, {T0: "a-0"})
    assert known.between({T0: Owner("b-0", 2)}, wanted).value == difference({T0: Owner("b-0", 2)}, wanted)


AGED = group([member("a", 1), member("b", 2, session_timeout_ms=4_000), member("c", 3)], {})
STATIC = Instance(last_id="x", hold_ms=9, threads={"t": 1}, share={}, assignor="range")


@pytest.mark.parametrize(
    "changed",
    [
        altered(AGED, assignor="range"),
        altered(AGED, session_timeout_min_ms=5_000),
        replace(AGED, protocols=(2, 2)),
        replace(AGED, instances={"i": STATIC}),
        replace(AGED, members={**AGED.members, "d": member("d", 4, assignors=("mine",))}, channels={
            **AGED.channels, "d": channel("d")
        }),
        replace(AGED, channels={"a": AGED.channels["a"]}),
    ],
    ids=["assignor", "session timeout", "protocols", "static members", "joined", "channels gone"],
)  # fmt: skip
def test_the_participants_are_asked_again_when_their_inputs_change(changed: GroupView) -> None:
    known = Negotiation().of(AGED, KNOWN)
    assert known.of(altered(AGED, generation=9), KNOWN) is known
    after = known.of(changed, KNOWN)
    assert after.answer == Negotiation().of(changed, KNOWN).answer
    assert after.answer != known.answer
