"""Names that the page answers to, tokens, and how often they are tried."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from zkcoord.errors import UsageError
from zkcoord.offsets.targets import Targets
from zkcoord.page.guard import (
    ACTIONS_MAX,
    ADDRESSES_MAX,
    HEADERS,
    WRONG_MAX,
    WRONG_MAX_ALL,
    Gate,
    Tries,
    answers_to,
    from_here,
)
from zkcoord.page.guard import read_token as read
from zkcoord.page.plans import plan_of_reset
from zkcoord.page.serve import listen

TOKEN = "0123456789abcdef"
STRANGE = (
    "",
    "evil.example",
    "evil.example:8080",
    "127.0.0.1.evil.example",
    "user@localhost",
    "localhost/x",
    "localhost?x",
    "localhost#x",
    "localhost:x",
    "localhost, evil.example",
    "groups.example.evil",
    "[::1",
    "127.1",
)


@pytest.mark.parametrize(
    "header", ["127.0.0.1", "127.0.0.1:8080", "localhost:8080", "LOCALHOST", "[::1]:8080", "10.1.2.3", "groups.example"]
)
def test_the_page_answers_to_addresses_and_to_names_that_it_was_given(header: str) -> None:
    assert answers_to(header, frozenset({"groups.example"}))


@pytest.mark.parametrize("header", STRANGE)
def test_f177_the_page_answers_to_no_other_name(header: str) -> None:
    assert not answers_to(header, frozenset({"groups.example"}))


def test_an_action_comes_from_the_page_itself_or_from_no_browser() -> None:
    assert from_here({"host": "127.0.0.1:8080"})
    assert from_here({"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-origin"})
    assert not from_here({"host": "127.0.0.1:8080", "origin": "http://evil.example"})
    assert not from_here({"host": "127.0.0.1:8080", "origin": "null"})
    assert not from_here({"host": "127.0.0.1:8080", "sec-fetch-site": "cross-site"})


def test_without_a_token_nothing_may_be_done() -> None:
    refusal = Gate(None).refusal("", "c", 0)
    assert refusal is not None
    assert refusal[0] == 403


def test_the_right_token_counts_and_a_wrong_one_is_tried_five_times_a_minute() -> None:
    gate = Gate(TOKEN)
    assert gate.refusal(TOKEN, "a", 0) is None
    for n in range(WRONG_MAX):
        refusal = gate.refusal(f"{TOKEN}{n}", "a", n)
        assert refusal is not None
        assert refusal[0] == 403
    blocked = gate.refusal(TOKEN, "a", 10)
    assert blocked is not None
    assert blocked[0] == 429
    assert gate.refusal(TOKEN, "b", 10) is None  # another address
    assert gate.refusal(TOKEN, "a", 60_010) is None


def test_wrong_tokens_of_many_addresses_are_limited_together() -> None:
    gate = Gate(TOKEN)
    for n in range(WRONG_MAX_ALL):
        gate.refusal("wrong", f"address {n}", 0)
    refusal = gate.refusal(TOKEN, "one more", 0)
    assert refusal is not None
    assert refusal[0] == 429


def test_f190_others_wrong_tokens_do_not_lock_out_a_right_user() -> None:
    gate = Gate(TOKEN)
    assert gate.refusal(TOKEN, "owner", 0) is None
    for n in range(WRONG_MAX_ALL):
        gate.refusal("wrong", f"address {n}", 0)
    assert gate.refusal(TOKEN, "owner", 1) is None
    for n in range(WRONG_MAX):
        gate.refusal("wrong", "owner", n)
    refusal = gate.refusal(TOKEN, "owner", WRONG_MAX)
    assert refusal is not None
    assert refusal[0] == 429


def test_headers_forbid_what_the_page_does_not_need() -> None:
    policy = set(HEADERS["content-security-policy"].split("; "))
    nothing = {f"{what} 'none'" for what in ("default-src", "base-uri", "frame-ancestors")}
    assert policy == nothing | {f"{what}-src 'self'" for what in ("style", "script", "img", "connect")} | {
        "form-action 'self'"
    }
    assert (HEADERS["x-frame-options"], HEADERS["x-content-type-options"]) == ("DENY", "nosniff")
    assert HEADERS["cache-control"] == "no-store"


def test_another_reset_is_another_plan() -> None:
    plans = [plan_of_reset(asked, (), Targets({}, [])) for asked in (["to-offset", "5"], ["to-offset", "6"])]
    assert plans[0].stamp != plans[1].stamp


def test_actions_are_limited() -> None:
    gate = Gate(TOKEN)
    assert [gate.refusal(TOKEN, "a", 0) for _ in range(ACTIONS_MAX)] == [None] * ACTIONS_MAX
    refusal = gate.refusal(TOKEN, "a", 59_999)
    assert refusal is not None
    assert refusal[0] == 429
    assert gate.refusal(TOKEN, "a", 60_000) is None


def test_tries_of_ever_new_addresses_do_not_fill_memory() -> None:
    tries = Tries(WRONG_MAX)
    for n in range(3 * ADDRESSES_MAX):
        tries.note(str(n), 0)
    assert len(tries._times) == ADDRESSES_MAX


def test_a_token_comes_from_a_file_that_only_its_owner_reads(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(TOKEN + "\n")
    file.chmod(0o644)
    with pytest.raises(UsageError, match="chmod 600"):
        read(str(file))
    tmp_path.chmod(0o755)
    with pytest.raises(UsageError, match=r"Is a directory.*: name a file with one line"):
        read(str(tmp_path))  # whose rights are no fault: to change them may lock others out
    file.chmod(0o600)
    assert read(str(file)) == TOKEN
    for text in ("", "short", f"{TOKEN} {TOKEN}", f"{TOKEN}ä", f"{TOKEN}\n{TOKEN}"):
        file.write_text(text)
        with pytest.raises(UsageError, match="at least 16"):
            read(str(file))
    with pytest.raises(UsageError, match=r"cannot be read \(No such file or directory\): name a file"):
        read(str(tmp_path / "none"))


def test_an_address_that_cannot_be_had_is_told_as_options_take_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=rf"nobody can listen on 127\.0\.0\.1:{port} for the page"):
            listen(("127.0.0.1", port))
    with pytest.raises(UsageError, match=r"nobody can listen on \[2001:db8::1\]:9464 for the page"):
        listen(("2001:db8::1", 9464))  # an address for examples: no machine has it
