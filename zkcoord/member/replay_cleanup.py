"""What a member announced and holds no more: looked up after each ping and for want of room, forgotten once it is over.

It stands in every status until then, so it takes room there that others' ranges may need (`core.replay_quota`).
"""

from __future__ import annotations

from zkcoord.core.model import TopicPartition
from zkcoord.member.session import MemberSession
from zkcoord.member.tasks import TASK, Step
from zkcoord.shell.ports import CallDone, CommitDone


class ReplayCleanup:
    """No command: it only reads. A task, so that nothing is started or released while what was read counts."""

    def __init__(self, session: MemberSession) -> None:
        self.step = Step.READ
        self._session = session
        self._lookup = session.lookup(TASK)
        self._lookup.begin(session.holdings.left_over())

    def partitions(self) -> set[TopicPartition]:
        """It is about nothing that is held."""
        return set()

    def advance(self) -> None:
        """Forget what was passed by a commit or is somebody else's now; the next status says so."""
        if self._lookup.clean:
            self._session.holdings.forget_passed(self._lookup, ())
            self._lookup.end()
            self.step = Step.DONE

    def called(self, done: CallDone) -> None:
        """Nothing was asked."""

    def written(self, outcomes: list[CommitDone]) -> None:
        """Nothing was written."""
