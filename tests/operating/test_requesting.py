"""A request says who asked, for the people who see its hold or its pause later."""

import os
import pwd
import socket
from dataclasses import replace

import pytest

from tests.migrate.memory_tree import MemoryTree
from zkcoord.core.record import GroupRecord, Request, Response
from zkcoord.errors import UsageError
from zkcoord.operating.requesting import Answer, answer_to, edit_record, who
from zkcoord.shell.ports import TOO_LARGE, CommitDone, Outcome
from zkcoord.tree.paths import LEGACY
from zkcoord.tree.record import encode_record


def test_a_user_is_named_where_no_variable_names_him(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under sudo, in a container or a systemd unit."""
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert who() == f"{pwd.getpwuid(0).pw_name}@{socket.gethostname()}"


def test_a_user_id_without_a_name_stands_for_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert who() == f"uid-3999999999@{socket.gethostname()}"


def test_a_record_that_would_be_too_large_is_refused_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was tried twenty times, and then said that others had changed it."""
    tree = MemoryTree("/zkcoord", "/zkcoord/groups")
    refused = CommitDone(0, Outcome.REFUSED, reason=TOO_LARGE)
    monkeypatch.setattr(tree, "commit", lambda transaction: refused)
    with pytest.raises(UsageError, match="it would be larger than ZooKeeper takes: make it smaller first"):
        edit_record(tree, LEGACY, "g", lambda record: replace(record, assignor="range"), new=True)


def test_a_request_in_whose_place_another_one_stands_was_carried_out() -> None:
    tree = MemoryTree("/zkcoord", "/zkcoord/groups")
    tree.set(LEGACY.record("g"), encode_record(GroupRecord(requests={"rebalance": Request(run="another")})))
    assert answer_to(tree, LEGACY, "g", "rebalance", "mine") == Answer(run="mine", state="done")
    assert answer_to(tree, LEGACY, "g", "rebalance", "another") is None


def test_a_deletion_that_has_begun_is_no_answer_yet() -> None:
    tree = MemoryTree("/zkcoord", "/zkcoord/groups")
    responses = {"delete": Response(run="r", state="deleting")}
    tree.set(LEGACY.record("g"), encode_record(GroupRecord(requests={"delete": Request(run="r")}, responses=responses)))
    assert answer_to(tree, LEGACY, "g", "delete", "r") is None
