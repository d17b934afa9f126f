"""Mutations: take a rule of the product away, and see that a test fails.

A mutation patches one place of the product. It is caught when a storm, or the script of its failure case, breaks a
checker or an assertion, or does not come to rest, and the same seed passes without the mutation. An error that the
product raises counts only if the case names it, since a patch that no longer fits the product raises errors, too. A
case has several times as many seeds as it needs, since any change of the product changes what the seeds draw.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, NamedTuple

import pytest

from tests.sim.garbage import collect_between
from tests.sim.script import Script

STORM_STEPS = 2_500
Play = Callable[[int], object]

NEVER_MEANT = (TypeError, NameError, AttributeError)
"""Errors of a patch that does not fit the product. None of them shows that a rule is missed."""

SLIPS = (AssertionError, LookupError, ValueError)
"""Errors that show nothing when the patch's own lines raise them."""


class BrokenMutationError(Exception):
    """A mutation no longer fits the product, so its failures show nothing."""


class Patch:
    """Like `pytest.MonkeyPatch`, for mutations. A new function must take all arguments that the old one takes. Errors
    of its own are noted, even if the product catches them."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self.mistakes: list[BaseException] = []

    def setattr(self, target: object, name: str, new: object) -> None:
        """Put `new` in the place of an attribute of a class or module. BrokenMutationError if it has another
        signature."""
        old = inspect.getattr_static(target, name)
        self._patch.setattr(target, name, self._checked(f"{target!r}.{name}", old, new))

    def setitem(self, mapping: Any, key: object, new: object) -> None:
        """Put `new` in the place of an item."""
        self._patch.setitem(mapping, key, self._checked(repr(key), mapping[key], new))

    def _checked(self, place: str, old: object, new: object) -> object:
        if isinstance(old, property) and isinstance(new, property):
            assert new.fget is not None
            return property(self._checked(place, old.fget, new.fget))  # type: ignore[arg-type]
        if not isinstance(new, FunctionType):
            return new
        if isinstance(old, property) or (isinstance(old, FunctionType) and not takes_all_of(new, old)):
            kind = "a property" if isinstance(old, property) else inspect.signature(old)
            raise BrokenMutationError(f"{place} is {kind}, the mutation has {inspect.signature(new)}")
        return self._noted(new)

    def _noted(self, new: FunctionType) -> Callable[..., Any]:
        @wraps(new)
        def noted(*args: Any, **named: Any) -> Any:
            try:
                return new(*args, **named)
            except NEVER_MEANT as error:
                self.mistakes.append(error)
                raise
            except SLIPS as error:
                here = error.__traceback__.tb_next if error.__traceback__ is not None else None
                if here is not None and here.tb_next is None:
                    self.mistakes.append(error)
                raise

        return noted


def takes_all_of(new: FunctionType, old: FunctionType) -> bool:
    """True if `new` can be called in place of the old function: with all parameters, with only those that have no
    default, and with any of them by name."""
    theirs, ours = inspect.signature(old), inspect.signature(new)
    parameters = list(theirs.parameters.values())
    for given in (parameters, [each for each in parameters if each.default is each.empty]):
        by_place = [each.name for each in given if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
        by_name = {each.name: None for each in given if each.kind is each.KEYWORD_ONLY}
        try:
            bound = ours.bind(*by_place, **by_name)
        except TypeError:
            return False
        if any(isinstance(value, str) and value != name for name, value in bound.arguments.items()):
            return False  # the same parameter has another name
    return True


def group_storm(seed: int) -> None:
    """A group that has settled, a storm, the calm."""
    script = Script(seed, None, topics={"t": 8, "u": 3})
    script.settle()
    script.world.storm(STORM_STEPS)
    script.calm()


class Case(NamedTuple):
    """A mutation must be found by `play` within this many seeds: by an assertion, or by this error of the product."""

    mutate: Callable[[Patch], None]
    play: Play
    seeds: int = 1
    by: type[Exception] = AssertionError
    first: int = 0  # the seed that found the mutation last: played first


def must_be_missed(
    mutate: Callable[[Patch], None], play: Play, seeds: int, by: type[Exception] = AssertionError, first: int = 0
) -> None:
    """Fail unless a play of one of the first seeds breaks under the mutation, and passes without it."""
    for seed in (*range(first, seeds), *range(first)):
        error, mistakes = _broken_by(mutate, play, seed)
        collect_between()
        if mistakes:
            raise BrokenMutationError(f"the mutation itself fails: {mutate.__name__}") from mistakes[0]
        if isinstance(error, (AssertionError, by)):
            _must_pass(play, seed)
            return
        if error is not None:
            raise BrokenMutationError(f"{mutate.__name__} is missed by no rule: {error!r}") from error
    pytest.fail(f"not missed within {seeds} seeds: {mutate.__doc__}")


def _must_pass(play: Play, seed: int) -> None:
    """Fail if the seed breaks without a mutation, too."""
    try:
        play(seed)
    except Exception as error:
        error.add_note(f"seed {seed} without the mutation")
        raise


def _broken_by(mutate: Callable[[Patch], None], play: Play, seed: int) -> tuple[Exception | None, list[BaseException]]:
    """How the play of this seed ends under the mutation, and the errors of the patch itself."""
    with pytest.MonkeyPatch.context() as context:
        patch = Patch(context)
        mutate(patch)
        try:
            play(seed)
        except Exception as error:
            return error, patch.mistakes
    return None, patch.mistakes
