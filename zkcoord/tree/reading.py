"""The only place that says which nodes of a group are read, in which order, and which of them are watched.

A group is read from its `roots` down. Each list names the nodes below it (`below`), and `wants` returns all nodes that
the lists read so far name. A tool reads these until nothing new is named. A coordinator follows the difference between
two lists. Of a group that is not adopted, a coordinator reads only the record (`first`).

Lists (members, channels, each channel's commands) and the record are watched. A node that a list names is read after
the list and without a watch: it changes only together with a list, whose watch reports it, or by an own write. The
other rules, with their reasons:

* ids before channels: a consumer makes its channel before its registration, so a member that is listed has its channel
  in the list of channels that is read behind it.
* owners before channels: a start and the owners that it grants are written in one multi. An owner that was read has its
  start in the channel that is read behind it, unless that was acknowledged: so no stop is sent beside it.
* A channel's list before its data: the data is the status, where acknowledged commands left their results.
* A topic's mark beside its owners' list: below a mark that is missing no owner is read.
* Where owners are claims, each topic's list of claims is watched, since anybody may create and delete one. A claim's
  data never changes.
* Other owners are not watched, since there may be very many. An owner that an acknowledgement changed is read with the
  channel (`serving.channels`), and all owners are read again now and then (`serving.owner_rounds`).
* The reply to an own multi tells what it wrote to owners, state and commands (`by_writes`).
"""

from __future__ import annotations

from collections.abc import Iterable

from zkcoord.tree.paths import EVICTED_MARK, Address, Layout, Place, is_sequence, partition_numbers
from zkcoord.tree.snapshot import Kind, Node, Read, Want


def first(group: str, layout: Layout) -> tuple[Want, ...]:
    """The nodes of a group that a coordinator reads first. Where groups must be adopted, this is only the record."""
    return (Want(layout.record(group), watch=True),) if layout.adopts else roots(group, layout)


def roots(group: str, layout: Layout) -> tuple[Want, ...]:
    """The nodes of a served group, in the order in which they are read."""
    return (
        Want(layout.ids(group), Kind.CHILDREN, watch=True),
        Want(layout.owners(group), Kind.CHILDREN),
        Want(layout.marks(group)),
        Want(layout.offsets(group)),
        Want(layout.channels_of(group), Kind.CHILDREN, watch=True),
        Want(layout.record(group), watch=True),
        Want(layout.state(group), by_writes=True),
        Want(layout.instances(group), Kind.CHILDREN),
    )


def above_partitions(group: str, topic: str, layout: Layout) -> tuple[Want, Want]:
    """The parents of a topic's owners and offsets."""
    return Want(layout.mark(group, topic)), Want(layout.topic_offsets(group, topic))


def of_topic(group: str, topic: str, layout: Layout) -> tuple[Want, ...]:
    """The nodes that tell of a topic to which a member subscribes: the parents, and the list of its claims in a layout
    with claims."""
    listed = Want(layout.topic_owners(group, topic), Kind.CHILDREN, watch=True)
    return (*above_partitions(group, topic, layout), *((listed,) if layout.ownership.claimed else ()))


def looked_up(group: str, topic: str, layout: Layout) -> tuple[Want, ...]:
    """The lists of the remaining nodes of a topic that is to be dropped."""
    return tuple(Want(path, Kind.CHILDREN) for path, *_ in above_partitions(group, topic, layout))


def below(address: Address, path: str, names: Iterable[str], layout: Layout) -> list[Want]:
    """The nodes that these children of a list name, in order."""
    match address.place:
        case Place.IDS | Place.INSTANCES:
            return [Want(f"{path}/{name}") for name in names]
        case Place.CHANNELS:
            paths = [f"{path}/{name}" for name in names]
            lists = [Want(each, Kind.CHILDREN, watch=True, by_writes=True) for each in paths]
            return [want for pair in zip(lists, map(Want, paths), strict=True) for want in pair]
        case Place.CHANNEL:
            return [Want(f"{path}/{name}") for name in names if is_sequence(name) or name == EVICTED_MARK]
        case Place.OWNERS:
            watch = layout.ownership.claimed
            topics = [(above_partitions(address.group, t, layout), f"{path}/{t}") for t in names]
            return [want for above, owners in topics for want in (*above, Want(owners, Kind.CHILDREN, watch))]
        case Place.MARK:
            return [Want(f"{path}/{number}", by_writes=True) for number in partition_numbers(names)]
        case Place.CLAIMS:
            return [Want(f"{path}/{number}") for number in partition_numbers(names)]
        case Place.OFFSETS if address.name:
            return [Want(f"{path}/{number}") for number in partition_numbers(names)]
        case Place.OFFSETS:
            return [Want(f"{path}/{topic}", Kind.CHILDREN) for topic in names]
    return []


def wants(nodes: Iterable[Node], layout: Layout, *, watch: bool = False) -> list[Read]:
    """All nodes that the lists among these name, each once, for a tool. `watch`: with the watches of a coordinator."""
    named: dict[Read, None] = {}
    for node in nodes:
        address = layout.parse(node.path) if node.kind is Kind.CHILDREN else None
        for want in below(address, node.path, node.children, layout) if address is not None else ():
            named[Read(want.path, want.kind, watch and want.watch)] = None
    return list(named)
