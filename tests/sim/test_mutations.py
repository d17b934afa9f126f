"""A mutation that shows nothing is distinguished from a mutation that is caught."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import pytest

from tests.sim.mutations import BrokenMutationError, Patch, must_be_missed
from zkcoord.errors import InvariantError


class Product:
    """A rule, and its callers."""

    def rule(self, value: int, *, strict: bool = False) -> int:
        """The rule: refuse negative values."""
        return max(value, 0)

    @property
    def ready(self) -> bool:
        """A property without a rule."""
        return True


def play(seed: int) -> None:
    """A scene that fails without the rule, in the third seed."""
    assert Product().rule(-1 if seed == 2 else 1) >= 0


def counted(plays: list[int], seed: int) -> None:
    """The same scene; it also notes which seeds are played."""
    plays.append(seed)
    play(seed)


def caught(seed: int) -> None:
    """A product that catches the rule's error and goes on; then it is not at rest."""
    try:
        Product().rule(1)
    except Exception:
        raise AssertionError("no rest") from None


def without_the_rule(patch: Patch) -> None:
    """Every value is taken."""
    patch.setattr(Product, "rule", lambda self, value, *, strict=False: value)


def of_an_earlier_signature(patch: Patch) -> None:
    """It has lost its place."""
    patch.setattr(Product, "rule", lambda self, value: value)


def of_another_name(patch: Patch) -> None:
    """Its caller gives something else by now."""
    patch.setattr(Product, "rule", lambda self, count, *, strict=False: count)


def of_a_property(patch: Patch) -> None:
    """It was a method once."""
    patch.setattr(Product, "ready", lambda self: False)


def that_fails(patch: Patch) -> None:
    """It uses what the product has no more."""

    def rule(self: Any, value: int, *, strict: bool = False) -> int:
        return int(self.limit)

    patch.setattr(Product, "rule", rule)


def whose_own_check_fails(patch: Patch) -> None:
    """It expects what the product does no more."""

    def rule(self: Product, value: int, *, strict: bool = False) -> int:
        assert value > 5
        return value

    patch.setattr(Product, "rule", rule)


def that_the_product_notices(patch: Patch) -> None:
    """The product has an invariant about it."""

    def rule(self: Product, value: int, *, strict: bool = False) -> int:
        raise InvariantError("there is no session")

    patch.setattr(Product, "rule", rule)


def test_a_mutation_that_an_assertion_catches_is_missed_within_its_seeds() -> None:
    must_be_missed(without_the_rule, play, 3)
    with pytest.raises(pytest.fail.Exception, match="not missed within 2 seeds: Every value is taken"):
        must_be_missed(without_the_rule, play, 2)
    must_be_missed(without_the_rule, partial(counted, plays := []), 9, first=2)
    assert plays == [2, 2]  # once with the mutation, and once without
    must_be_missed(without_the_rule, partial(counted, plays := []), 5, first=3)
    assert plays == [3, 4, 0, 1, 2, 2]


@pytest.mark.parametrize("mutate", [of_an_earlier_signature, of_another_name, of_a_property])
def test_a_mutation_with_another_signature_than_the_product_is_refused(mutate: Any) -> None:
    with pytest.raises(BrokenMutationError, match="the mutation has"):
        must_be_missed(mutate, play, 3)


@pytest.mark.parametrize("mutate", [that_fails, whose_own_check_fails])
@pytest.mark.parametrize("scene", [play, caught])
def test_a_mistake_of_the_mutation_itself_shows_nothing_whoever_catches_it(mutate: Any, scene: Any) -> None:
    with pytest.raises(BrokenMutationError, match="the mutation itself fails"):
        must_be_missed(mutate, scene, 3)


def test_an_error_of_the_product_counts_only_where_the_case_names_it() -> None:
    with pytest.raises(BrokenMutationError, match="there is no session"):
        must_be_missed(that_the_product_notices, play, 3)
    must_be_missed(that_the_product_notices, play, 3, InvariantError)


def test_a_scene_that_breaks_without_a_mutation_too_shows_nothing() -> None:
    def broken(seed: int) -> None:
        raise AssertionError("it always breaks")

    with pytest.raises(AssertionError, match="it always breaks") as caught_error:
        must_be_missed(without_the_rule, broken, 1)
    assert caught_error.value.__notes__ == ["seed 0 without the mutation"]


def test_the_product_is_as_it_was_behind_a_mutation() -> None:
    must_be_missed(without_the_rule, play, 3)
    assert list(inspect.signature(Product.rule).parameters) == ["self", "value", "strict"]
    assert Product().rule(-1) == 0
