"""The calls of one registration that read and write the group's commits in Kafka (`core.member.log`). They go through a
port with the same interface as the application's callbacks. They do not count among the calls that wait for the
application."""

from __future__ import annotations

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits, CommitToKafka
from zkcoord.core.member.log import CommitLog, LogCall
from zkcoord.member.calls import Calls
from zkcoord.shell.ports import Callbacks, CallDone


class LogCalls:
    """The calls under way. `log` is what decisions see of them."""

    def __init__(self, port: Callbacks, tokens: Calls, log: CommitLog) -> None:
        """`port` serves one group. Its `read` takes partitions and answers partition -> KafkaCommit; its `commit` takes
        such a mapping and answers a CommitOutcome. It stamps commits with the wall clock's time (`Stamp.at_ms`)."""
        self._port, self._tokens, self.log = port, tokens, log

    def call(self, decision: AskCommits | CommitToKafka) -> None:
        """Make the call that was decided on."""
        token = self._tokens.next_token()
        if isinstance(decision, AskCommits):
            self.log = self.log.asked(token, LogCall("read", decision.partitions, decision.starting))
            self._port.call(token, "read", decision.partitions)
        else:
            self.log = self.log.asked(token, LogCall("commit", tuple(decision.commits)))
            self._port.call(token, "commit", decision.commits)

    def answered(self, done: CallDone) -> None:
        """Take in an answer. An answer to another registration's call changes nothing."""
        self.log = self.log.answered(done.token, done.value, done.error)

    def heard(self) -> None:
        """Note that a decision has seen all answers."""
        self.log = self.log.heard()

    def named(self, tree: str) -> None:
        """The tree has this id from now on."""
        self.log = fast_replace(self.log, tree=tree)
