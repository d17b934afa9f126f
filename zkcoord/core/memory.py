"""What a coordinator remembers of one group between two steps: first sights and last answers, nothing of the tree."""

from __future__ import annotations

from dataclasses import dataclass, field

from zkcoord.core.admission import Admissions
from zkcoord.core.causes import Causes
from zkcoord.core.delay import FirstDelay
from zkcoord.core.difference import Difference, Differences
from zkcoord.core.instances import Holds
from zkcoord.core.janitor import Retention
from zkcoord.core.liveness import Liveness
from zkcoord.core.patience import Patience
from zkcoord.core.quarantine import Quarantines
from zkcoord.core.room import Rooms
from zkcoord.core.target import Target
from zkcoord.core.topics import TopicMemory
from zkcoord.core.view import GroupView


@dataclass(slots=True)
class Memory:
    """Each part looks at every view before it is asked; lost at a failover without harm."""

    patience: Patience = field(default_factory=Patience)
    liveness: Liveness = field(default_factory=Liveness)
    holds: Holds = field(default_factory=Holds)
    quarantines: Quarantines = field(default_factory=Quarantines)
    admissions: Admissions = field(default_factory=Admissions)
    target: Target = field(default_factory=Target)
    differences: Differences = field(default_factory=Differences)
    delay: FirstDelay = field(default_factory=FirstDelay)
    causes: Causes = field(default_factory=Causes)
    topics: TopicMemory = field(default_factory=TopicMemory)
    retention: Retention = field(default_factory=Retention)
    rooms: Rooms = field(default_factory=Rooms)
    rebalanced: str = ""  # the run of the last wished rebalance for which the target was asked for again

    def difference(self, view: GroupView) -> Difference:
        """Between the owners and what is to be reached now."""
        return self.differences.between(view.owners, self.target.assignment)
