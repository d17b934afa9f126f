"""Every error of kazoo and ZooKeeper is mapped to REFUSED or UNKNOWN on purpose. Requests have the bytes that kazoo
would send."""

import inspect
import struct

import pytest
from kazoo import exceptions, retry
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.protocol.serialization import Transaction as KazooTransaction
from kazoo.security import OPEN_ACL_UNSAFE

from zkcoord.shell.ports import TOO_LARGE, CommitDone, Outcome, too_large
from zkcoord.shell.zk import jute, multi, multiread
from zkcoord.shell.zk.connection import Call
from zkcoord.shell.zk.jute import Op
from zkcoord.tree.snapshot import Kind
from zkcoord.tree.writes import CheckNode, CreateNode, DeleteNode, SetNode, Transaction

CLASSES = [e for _, e in inspect.getmembers(exceptions, inspect.isclass) if issubclass(e, Exception)]
BYSTANDERS = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
FOREIGN = [KazooTimeoutError, retry.ForceRetryError, retry.RetryFailedError, OSError, RuntimeError]


def operations(*codes: int) -> bytes:
    """The reply to a multi whose operations ended with these errors."""
    parts = b"".join(struct.pack("!iBii", -1, 0, code, code) for code in codes)
    return parts + struct.pack("!iBi", -1, 1, -1)


@pytest.mark.parametrize("error", [*CLASSES, *FOREIGN], ids=lambda e: e.__name__)
def test_a_failed_whole_request_leaves_its_outcome_unknown(error: type[Exception]) -> None:
    answers: list[CommitDone] = []
    call = Call(Op.MULTI, b"", lambda code, frame, offset: answers.append(multi.decode(7, code, frame, offset)))

    call.set_exception(error())

    assert [(a.token, a.outcome, a.versions, a.failed_at) for a in answers] == [(7, Outcome.UNKNOWN, (), -1)]


@pytest.mark.parametrize("error", sorted(set(exceptions.EXCEPTIONS.values()), key=str), ids=lambda e: e.__name__)
def test_an_operations_error_is_a_refusal_that_names_it(error: type[Exception]) -> None:
    rolled_back, inconsistent = (e.code for e in BYSTANDERS)

    done = multi.decode(7, 0, operations(rolled_back, error.code, inconsistent), 0)

    if error in BYSTANDERS:
        assert done.outcome is Outcome.UNKNOWN
    else:
        assert done == CommitDone(7, Outcome.REFUSED, failed_at=1, reason=error.__name__.removesuffix("Error"))


def test_an_error_code_that_kazoo_does_not_know_is_a_refusal_too() -> None:
    assert multi.decode(1, 0, operations(0, -999), 0) == CommitDone(1, Outcome.REFUSED, failed_at=1, reason="Code-999")


def test_a_reply_that_cannot_be_read_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[CommitDone] = []
    call = Call(Op.MULTI, b"", lambda code, frame, offset: answers.append(multi.decode(7, code, frame, offset)))

    call.reply(0, b"\0\0", 0)

    assert [a.outcome for a in answers] == [Outcome.UNKNOWN]
    assert "cannot be read" in caplog.text


def test_a_multi_is_spelled_as_kazoo_spells_it() -> None:
    writes = (
        CheckNode("/", -1),
        CreateNode("/a", b"x", ephemeral=True),
        SetNode("/a", b"", 3),
        DeleteNode("/ä", 4),
        CreateNode("/c", b"y", sequential=True),
    )
    operations = [
        CheckVersion("/chroot", -1),
        Create("/chroot/a", b"x", OPEN_ACL_UNSAFE, 1),
        SetData("/chroot/a", b"", 3),
        Delete("/chroot/ä", 4),
        Create("/chroot/c/", b"y", OPEN_ACL_UNSAFE, 2),
    ]

    assert multi.encode(Transaction(writes=writes), "/chroot") == bytes(KazooTransaction(operations).serialize())


def test_of_a_transaction_that_is_too_large_the_largest_write_is_refused() -> None:
    writes = (CheckNode("/zkcoord/epoch", 3), SetNode("/a", b"x" * 200, 0), CreateNode("/b", b"x" * 100))
    done = too_large(7, Transaction(writes=writes))
    assert done == CommitDone(7, Outcome.REFUSED, (), 1, TOO_LARGE)
    assert not done.answered  # it extends no lease


def test_a_multi_read_is_cut_by_number_and_by_size() -> None:
    assert [count for count, _ in multiread.chunks([("/a", Kind.DATA)] * 1_203)] == [500, 500, 203]
    assert [count for count, _ in multiread.chunks([("/" + "n" * 200_000, Kind.DATA)] * 5)] == [2, 2, 1]
    assert [count for count, _ in multiread.chunks([("/" + "n" * 600_000, Kind.DATA)])] == [1]
    assert list(multiread.chunks([])) == []


def test_a_shared_node_is_open_whatever_acl_is_configured() -> None:
    closed = jute.acls([(31, "digest", "ann:hash")])
    assert closed != multi.OPEN_ACL
    own, shared = (multi.encode(Transaction(writes=(CreateNode("/a", shared=s),)), "", closed) for s in (False, True))
    assert (closed in own, multi.OPEN_ACL in own) == (True, False)
    assert (closed in shared, multi.OPEN_ACL in shared) == (False, True)
