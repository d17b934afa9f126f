"""The errors of zkcoord, by who must act on them. Everything that zkcoord raises on purpose stands in this tree:

    ZkcoordError               exit 1   base of everything raised on purpose
      UsageError                    2   the caller must change the call
        RefusedError                2   Kafka refuses this user: whoever manages credentials and rights must act
        UnknownPartitionError       2   Kafka does not know a partition: wait for a new one, or change the call
      ConsumerRebalanceFailed       3   a group could not be rebalanced after its retries (the draft's exception)
      FencedError                   4   this process may no longer act: stop
      UnavailableError              5   ZooKeeper or Kafka cannot be reached: wait, try later
      CorruptError                  6   bytes in a znode break the format: an operator must look
      SchemaError                   7   tree and code are of different revisions: migrate, or deploy
      LoopEndedError                1   a request came after the end of the loop that answers requests
    InvariantError                 70   a bug in zkcoord: stop, keep the journal, report

A refused or an unknown commit is not an error: it is an outcome (`zkcoord.shell.ports.Outcome`).
"""

from __future__ import annotations

from collections.abc import Iterable


class ZkcoordError(Exception):
    """Base of every error that zkcoord raises on purpose; the command line exits with `exit_code`."""

    exit_code = 1


class UsageError(ZkcoordError):
    """The caller must change the call: a wrong flag, a missing extra, an impossible setting."""

    exit_code = 2


class RefusedError(UsageError):
    """Kafka refuses the credentials, or this user lacks a right. Another try as the same user changes nothing."""


class UnknownPartitionError(UsageError):
    """Kafka does not know some partitions: they do not exist, or are new (brokers learn of new ones one after the
    other).

    `partitions`: the unknown ones, each a topic and a number.
    """

    def __init__(self, message: str, partitions: Iterable[tuple[str, int]] = ()) -> None:
        super().__init__(message)
        self.partitions = frozenset(partitions)


class ConsumerRebalanceFailed(ZkcoordError):
    """A group could not be rebalanced within its retries (draft, "ConsumerRebalanceFailedException")."""

    exit_code = 3


class FencedError(ZkcoordError):
    """This process has lost its registration, epoch or partition, so it may not act; nothing was written."""

    exit_code = 4


class UnavailableError(ZkcoordError):
    """ZooKeeper or Kafka cannot be reached; the call may be made again later."""

    exit_code = 5


class CorruptError(ZkcoordError):
    """A znode holds bytes that break its format; the message names the path, an operator must look."""

    exit_code = 6


class SchemaError(ZkcoordError):
    """The tree and this program are of different revisions, or of different layouts."""

    exit_code = 7


class LoopEndedError(ZkcoordError):
    """A request came after the end of the loop that answers requests. The public classes translate it."""


class InvariantError(Exception):
    """A bug in zkcoord. It is no ZkcoordError, so that no code catches it by accident."""

    exit_code = 70


def invariant(holds: bool, message: str) -> None:
    """Raise InvariantError unless `holds`; unlike `assert` it survives `python -O`."""
    if not holds:
        raise InvariantError(message)
