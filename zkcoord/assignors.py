"""The types that a user's own assignor needs, and the code by which a coordinator finds such assignors.

A package names its function in the entry point group `zkcoord.assignors`. Every coordinator in an environment with that
package has the assignor under that name. Members choose it by offering its name; they need not have it installed:

    setup(..., entry_points={"zkcoord.assignors": ["by-customer = my_package.assignors:by_customer"]})

The function takes an `AssignorInput` and returns a mapping from partition to thread. It must be pure: the same input
has the same result in every process. It must be fast, since all groups wait for it.

>>> def first_come(given: AssignorInput) -> dict[TopicPartition, str]:
...     answer = {}
...     for topic, numbers in given.partitions.items():
...         readers = [thread for member in given.subscribers for thread in member.thread_ids(topic)]
...         for number in numbers:
...             partition = TopicPartition(topic, number)
...             if readers:  # who has it keeps it, else the first reader takes it
...                 owner = given.owned.get(partition)
...                 answer[partition] = owner if owner in readers else min(readers)
...     return answer
>>> group = AssignorInput(
...     subscribers=(Subscriber(consumer_id="g_a", threads={"t": 1}), Subscriber(consumer_id="g_b", threads={"t": 1})),
...     partitions={"t": (0, 1)},
...     owned={TopicPartition("t", 1): "g_b-0"},
... )
>>> check_assignment(group, first_come(group))  # what a coordinator checks of every answer
>>> first_come(group)
{TopicPartition(topic='t', partition=0): 'g_a-0', TopicPartition(topic='t', partition=1): 'g_b-0'}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType

from zkcoord.core.assignors import ASSIGNORS, AssignmentError, Assignor, AssignorInput, check_assignment
from zkcoord.core.given import given_function
from zkcoord.core.model import Subscriber, TopicPartition, is_name
from zkcoord.errors import UsageError

__all__ = ["AssignmentError", "Assignor", "AssignorInput", "Subscriber", "TopicPartition", "check_assignment"]

GROUP = "zkcoord.assignors"


@dataclass(frozen=True, slots=True)
class UserAssignor:
    """A user's function. It gets its input read-only. A journal holds only its name."""

    name: str
    function: Assignor

    def __call__(self, given: AssignorInput) -> dict[TopicPartition, str]:
        """Return the function's result."""
        return self.function(
            replace(
                given,
                subscribers=tuple(replace(s, threads=MappingProxyType(dict(s.threads))) for s in given.subscribers),
                partitions=MappingProxyType(dict(given.partitions)),
                owned=MappingProxyType(dict(given.owned)),
                weights=MappingProxyType(dict(given.weights)),
                racks=MappingProxyType(dict(given.racks)),
            )
        )

    def __reduce__(self) -> tuple[Callable[[str], UserAssignor], tuple[str]]:
        return _installed, (self.name,)


def installed_assignors(problem: Callable[[str, str], None]) -> dict[str, Assignor]:
    """Return name -> assignor of all installed packages. Call `problem(name, why)` for each that cannot be used."""
    found: dict[str, Assignor] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        try:
            check_name(entry.name)
            if entry.name in ASSIGNORS or entry.name in found:
                raise UsageError(f"the name {entry.name!r} is taken: its author must choose another")
            found[entry.name] = _loaded(entry)
        except Exception as error:  # importing a package may raise anything; the other packages are still used
            problem(entry.name, f"{entry.value}: {type(error).__name__}: {error}")
    return found


def all_assignors(own: Mapping[str, Assignor]) -> dict[str, Assignor]:
    """Return the project's assignors and these; UsageError for a name that is taken or invalid."""
    if not isinstance(own, Mapping):
        raise UsageError(f"assignors is {own!r}: pass a mapping from name to function")
    for name, one in own.items():
        check_name(name)
        given_function(f"the assignor {name!r}", one)
        if name in ASSIGNORS:
            raise UsageError(f"the assignor's name {name!r} is taken: choose another")
    wrapped = {name: one if isinstance(one, UserAssignor) else UserAssignor(name, one) for name, one in own.items()}
    return {**ASSIGNORS, **wrapped}


def check_offers(names: Sequence[str]) -> None:
    """Raise UsageError unless these are names that a consumer can offer. The consumer need not know them, since the
    coordinator computes."""
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise UsageError(f"assignors must be a list of names: {', '.join(sorted(ASSIGNORS))}, or your own")
    for name in names:
        check_name(name)


def check_name(name: str) -> None:
    """Raise UsageError for a name that an assignor cannot have in registrations and records."""
    if not isinstance(name, str) or not is_name(name):
        raise UsageError(f"assignor {name!r}: small letters, digits, '.', '_' and '-' only, at most 64")


def _loaded(entry: EntryPoint) -> UserAssignor:
    function = entry.load()
    if not callable(function):
        raise UsageError("an assignor is a function")
    return UserAssignor(entry.name, function)


def _installed(name: str) -> UserAssignor:
    """Return the assignor of that name for the replay of a journal: its package must be installed there, too."""
    for entry in entry_points(group=GROUP, name=name):
        return _loaded(entry)
    raise ImportError(f"no installed package brings the assignor {name!r}")
