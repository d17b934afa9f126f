"""One registration's calls to the group's commits in Kafka (`core.member.log`), through a port of the application's
shape. They do not count among the calls that wait for the application."""

from __future__ import annotations

from zkcoord.core.fast_replace import fast_replace
from zkcoord.core.member.decisions import AskCommits, CommitToKafka
from zkcoord.core.member.log import CommitLog, LogCall
from zkcoord.member.calls import Calls
from zkcoord.shell.ports import Callbacks, CallDone


class LogCalls:
    """The calls under way, as decisions see them: `log`."""

    def __init__(self, port: Callbacks, tokens: Calls, log: CommitLog) -> None:
        """`port`: `read` takes partitions and answers partition -> KafkaCommit; `commit` takes that, and answers a
        CommitOutcome. It is for one group, and stamps the wall clock's time (`Stamp.at_ms`)."""
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
        """Take an answer in; another registration's changes nothing."""
        self.log = self.log.answered(done.token, done.value, done.error)

    def heard(self) -> None:
        """A decision has seen all answers."""
        self.log = self.log.heard()

    def named(self, tree: str) -> None:
        """The tree has this id from now on."""
        self.log = fast_replace(self.log, tree=tree)
