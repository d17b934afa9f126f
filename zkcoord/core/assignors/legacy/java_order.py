"""The orders that decide an old member's plan where partitions tie: Java's string hash, and the iteration order of its
maps.

Old members go through topics in the order of Scala's hash maps (2.10 to 2.12). No sort hides this order when two
partitions have equal hashes. They go through members in the order in which a ZooKeeper server lists children, which is
that of a Java hash set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkcoord.core.model import Subscriber

_MASK = 0xFFFFFFFF
_MUTABLE_SIZE = 16  # buckets of a new mutable.HashMap; it doubles when it is more than three quarters full
_MUTABLE_SEED = 4  # number of bits of its first size; growing does not change it
_SET_SIZE = 8  # buckets of a new list of children in ZooKeeper's server


def java_hash(text: str, start: int = 0) -> int:
    """Java's `String.hashCode`, signed. `start` is the hash of the part before the text.

    >>> java_hash("[events,0]"), java_hash("events-10"), java_hash("10", java_hash("events-"))
    (-670581339, 32279379, 32279379)
    """
    value = start
    if text.isascii():
        for character in text.encode("ascii"):
            value = value * 31 + character
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for high, low in zip(units[::2], units[1::2], strict=True):
            value = value * 31 + (high << 8 | low)
    return ((value + 0x80000000) & _MASK) - 0x80000000


def immutable_order(keys: Iterable[str]) -> list[str]:
    """The keys in the iteration order of an immutable Scala map: up to four as they came, more as a trie over their
    hashes.

    >>> immutable_order(["b", "a"]), immutable_order(["t0", "t1", "t2", "t3", "t4", "t5"])[0]
    (['b', 'a'], 't4')
    """
    once = list(dict.fromkeys(keys))
    return once if len(once) <= 4 else sorted(once, key=_trie_place)


def _trie_place(key: str) -> tuple[int, ...]:
    mixed = java_hash(key) & _MASK
    mixed = (mixed + (~(mixed << 9) & _MASK)) & _MASK
    mixed ^= mixed >> 14
    mixed = (mixed + (mixed << 4)) & _MASK
    mixed ^= mixed >> 10
    return tuple(mixed >> shift & 31 for shift in range(0, 35, 5))


def mutable_order(keys: Iterable[str]) -> list[str]:
    """The keys in the iteration order of a mutable Scala hash map into which they were put one after the other.

    The map iterates from its last bucket to its first. In a bucket the newest key comes first; growing reverses that.

    >>> mutable_order(["Aa", "BB"])
    ['BB', 'Aa']
    """
    buckets: list[list[str]] = [[] for _ in range(_MUTABLE_SIZE)]
    for count, key in enumerate(dict.fromkeys(keys), start=1):
        buckets[_mutable_bucket(key, len(buckets))].insert(0, key)
        if count > len(buckets) * 3 // 4:
            older, buckets = buckets, [[] for _ in range(2 * len(buckets))]
            for moved in _last_to_first(older):
                buckets[_mutable_bucket(moved, len(buckets))].insert(0, moved)
    return _last_to_first(buckets)


def _last_to_first(buckets: list[list[str]]) -> list[str]:
    return [key for chain in reversed(buckets) for key in chain]


def _mutable_bucket(key: str, size: int) -> int:
    swapped = java_hash(key) * 0x9E3775CD & _MASK
    swapped = int.from_bytes(swapped.to_bytes(4, "big"), "little") * 0x9E3775CD & _MASK
    turned = (swapped >> _MUTABLE_SEED | swapped << (32 - _MUTABLE_SEED)) & _MASK
    return turned >> (33 - size.bit_length())


def children_order(names: Iterable[str]) -> list[str]:
    """The names in the order in which a ZooKeeper server lists children: that of a Java hash set. (The order differs if
    the list was once much longer.)

    Names in one bucket come in the order in which they were created, here the order of `names`.

    >>> children_order(["g_b", "g_a"])
    ['g_a', 'g_b']
    """
    once = list(dict.fromkeys(names))
    size = _SET_SIZE
    while len(once) > size * 3 // 4:
        size *= 2
    return sorted(once, key=lambda name: _spread(java_hash(name)) & (size - 1))


def _spread(value: int) -> int:
    return (value ^ (value & _MASK) >> 16) & _MASK


def topics_of_all(subscribers: Iterable[Subscriber]) -> list[str]:
    """All topics of all members, in the order in which a member of 0.10.2 or later goes through them.

    `subscribers` come in the order in which they registered, as far as it is known. That order counts where the
    server's own order ties (`children_order`).
    """
    members = {member.consumer_id: member for member in subscribers}
    listed = (topic for name in children_order(members) for topic in mutable_order(_listed(members[name].threads)))
    return mutable_order(mutable_order(mutable_order(listed)))


def topics_of_one(member: Subscriber) -> list[str]:
    """The member's own topics, in the order in which a member of 0.8.2 to 0.10.1 goes through them."""
    return mutable_order(mutable_order(mutable_order(_listed(member.threads))))


def _listed(threads: Mapping[str, int]) -> list[str]:
    return immutable_order(topic for topic, count in threads.items() if count)
