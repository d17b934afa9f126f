"""Sticky shares for a group whose threads may all read the same topics: the minimum of movement, proven.

P partitions and N threads make quotas of P div N, and P mod N threads get one more: first those that hold more than
P div N already, then the others, each in canonical order. A thread keeps the canonically first of what it holds, up to
its quota; so the number of moves is the sum of what stands above the quotas (and what no thread of the group holds),
which no choice of quotas makes smaller. What is left is laid along the open places, both in canonical order: taking a
matched pair out of two such rows matches the rest as before.

Written in passes of built-in functions, because a Python statement per partition costs more than all the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, compress, filterfalse, repeat

from zkcoord.core.assignors.classes import ThreadClass, as_partitions, canonical, canonical_key, owned_among
from zkcoord.core.assignors.contract import AssignorInput
from zkcoord.core.model import TopicPartition


def assign_uniform(group: ThreadClass, given: AssignorInput) -> dict[TopicPartition, str]:
    """Counts of any two threads differ by at most one; the fewest owned partitions change their thread."""
    answer, counts, pool = _holdings(group, given)
    held = list(map(counts.get, group.threads, repeat(0)))
    quotas = _quotas(group.threads, len(answer) + len(pool), held)
    surplus = _surplus(answer, counts, quotas)
    if surplus:
        pool = sorted(pool + surplus, key=canonical_key)
    places = chain.from_iterable(
        repeat(thread, quotas[thread] - number)
        for thread, number in zip(group.threads, held, strict=True)
        if number < quotas[thread]
    )
    answer.update(zip(pool, places, strict=True))
    return answer


def _holdings(
    group: ThreadClass, given: AssignorInput
) -> tuple[dict[TopicPartition, str], Mapping[str, int], list[TopicPartition]]:
    """(what threads of the group hold of its partitions, how many each of them holds, what nobody holds, in order)."""
    if not given.owned:
        return {}, {}, as_partitions(canonical(group.topics, given.partitions))
    owned = dict(given.owned)
    counts = Counter(owned.values())
    free = _free(group, given.partitions, owned)
    total = sum(len(given.partitions[topic]) for topic in group.topics)
    if len(owned) + len(free) != total or not counts.keys() <= set(group.threads):
        owned = owned_among(owned, [group], given.partitions)
        counts = Counter(owned.values())
        free = _free(group, given.partitions, owned)
    if len(free) <= total // 8:
        free.sort(key=canonical_key)
    else:  # a walk over all is cheaper than sorting by a key
        free = list(filterfalse(owned.__contains__, canonical(group.topics, given.partitions)))
    return owned, counts, as_partitions(free)


def _free(
    group: ThreadClass, partitions: Mapping[str, tuple[int, ...]], owned: Mapping[TopicPartition, str]
) -> list[tuple[str, int]]:
    """The partitions that are not in `owned`, by topic, then number."""
    pairs = chain.from_iterable(zip(repeat(topic), partitions[topic], strict=False) for topic in group.topics)
    return list(filterfalse(owned.__contains__, pairs))


def _quotas(threads: list[str], partitions: int, held: list[int]) -> dict[str, int]:
    """Thread to the number of partitions it ends with."""
    quotient, remainder = divmod(partitions, len(threads))
    quotas = dict.fromkeys(threads, quotient)
    more = [thread for thread, number in zip(threads, held, strict=True) if number > quotient][:remainder]
    if len(more) < remainder:
        chosen = set(more)
        more += [thread for thread in threads if thread not in chosen][: remainder - len(more)]
    quotas.update(dict.fromkeys(more, quotient + 1))
    return quotas


def _surplus(
    owned: Mapping[TopicPartition, str], counts: Mapping[str, int], quotas: Mapping[str, int]
) -> list[TopicPartition]:
    """What threads hold above their quotas: of each the canonically last."""
    over: dict[str, list[TopicPartition]] = {thread: [] for thread, number in counts.items() if number > quotas[thread]}
    if not over:
        return []
    for pair in compress(owned, map(over.__contains__, owned.values())):
        over[owned[pair]].append(pair)
    return [pair for thread, pairs in over.items() for pair in sorted(pairs, key=canonical_key)[quotas[thread] :]]
