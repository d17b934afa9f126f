"""A request says who asked, for the people who see its hold or its pause later."""

import os
import pwd
import socket

import pytest

from zkcoord.operating.requesting import who


def test_a_user_is_named_where_no_variable_names_him(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under sudo, in a container or a systemd unit."""
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert who() == f"{pwd.getpwuid(0).pw_name}@{socket.gethostname()}"


def test_a_user_id_without_a_name_stands_for_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("USER", raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 3_999_999_999)
    assert who() == f"uid-3999999999@{socket.gethostname()}"
