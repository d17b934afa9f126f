"""Sticky shares for a group whose threads may all read the same topics. The movement is provably the least.

With P partitions and N threads each thread has a quota of P div N, and P mod N threads get one more: first those that
already hold more than P div N, then the others, each in canonical order. A thread keeps the canonically first of its
partitions, up to its quota. So the moves are the surplus above the quotas, plus the partitions that no thread of the
group holds; no other choice of quotas makes fewer. The rest is matched with the open places, both in canonical order:
without one matched pair, the other pairs stay the same.

The code consists of passes of built-in functions, because a Python statement for each partition would cost more than
everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, compress, filterfalse, repeat

from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.assignors.sticky.classes import (
    ThreadClass,
    canonical,
    canonical_key,
    canonical_pairs,
    owned_among,
)
from zkcoord.core.model import TopicPartition, as_partitions


def assign_uniform(group: ThreadClass, given: AssignorInput) -> dict[TopicPartition, str]:
    """Counts of any two threads differ by at most one, and the fewest owned partitions change their thread."""
    answer, held, pool = _holdings(group, given)
    quotas = _quotas(held, len(answer) + len(pool))
    over = {thread: quota for thread, number, quota in zip(group.threads, held, quotas, strict=True) if number > quota}
    if over:
        pool = sorted(pool + _surplus(answer, over), key=canonical_key)
    places = chain.from_iterable(
        repeat(thread, quota - number)
        for thread, number, quota in zip(group.threads, held, quotas, strict=True)
        if number < quota
    )
    answer.update(zip(pool, places, strict=True))
    return answer


def _holdings(
    group: ThreadClass, given: AssignorInput
) -> tuple[dict[TopicPartition, str], list[int], list[TopicPartition]]:
    """Return (the partitions that threads of the group hold, the number that each thread holds, the partitions that
    nobody holds, in order)."""
    if not given.owned:
        return {}, [0] * len(group.threads), as_partitions(canonical_pairs(group.topics, given.partitions))
    total = sum(len(given.partitions[topic]) for topic in group.topics)
    owned = dict(given.owned)
    held = list(map(Counter(owned.values()).get, group.threads, repeat(0)))
    free = _free(group, given.partitions, owned)
    if sum(held) != len(owned) or len(owned) + len(free) != total:
        owned = owned_among(owned, [group], given.partitions)
        held = list(map(Counter(owned.values()).get, group.threads, repeat(0)))
        free = _free(group, given.partitions, owned)
    if len(free) <= total // 8:
        free.sort(key=canonical_key)
    else:  # one walk over all is cheaper than a sort by a key
        free = list(filterfalse(owned.__contains__, canonical(group.topics, given.partitions)))
    return owned, held, as_partitions(free)


def _free(
    group: ThreadClass, partitions: Mapping[str, tuple[int, ...]], owned: Mapping[TopicPartition, str]
) -> list[tuple[str, int]]:
    """Return the partitions that are not in `owned`, ordered by topic, then number."""
    pairs = chain.from_iterable(zip(repeat(topic), partitions[topic], strict=False) for topic in group.topics)
    return list(filterfalse(owned.__contains__, pairs))


def _quotas(held: list[int], partitions: int) -> list[int]:
    """Return the number of partitions that each thread ends with, in the order of the threads."""
    quotient, remainder = divmod(partitions, len(held))
    quotas = [quotient] * len(held)
    more = [index for index, number in enumerate(held) if number > quotient][:remainder]
    if len(more) < remainder:
        others = [index for index, number in enumerate(held) if number <= quotient]
        more += others[: remainder - len(more)]
    for index in more:
        quotas[index] += 1
    return quotas


def _surplus(owned: Mapping[TopicPartition, str], over: Mapping[str, int]) -> list[TopicPartition]:
    """Return the partitions that threads hold above their quotas (`over`: thread -> quota): of each thread the
    canonically last."""
    holdings: dict[str, list[TopicPartition]] = {thread: [] for thread in over}
    for pair in compress(owned, map(over.__contains__, owned.values())):
        holdings[owned[pair]].append(pair)
    return [pair for thread, pairs in holdings.items() for pair in sorted(pairs, key=canonical_key)[over[thread] :]]
