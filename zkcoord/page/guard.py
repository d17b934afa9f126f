"""Protects the page: the host names that it answers to, the token, the limit on wrong tokens, the headers of
answers."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from zkcoord.errors import UsageError

TOKEN_LEAST = 16
WINDOW_MS = 60_000
WRONG_MAX = 5
"""Wrong tokens that an address may send within the window. After that no token of this address is checked until the
window is over."""
WRONG_MAX_ALL = 60
ACTIONS_MAX = 30
"""Actions of all users with the token within the window."""
ADDRESSES_MAX = 1_000
OTHERS_BITS = 0o077
PREFIX = re.compile(r"(/[A-Za-z0-9_-][A-Za-z0-9._~-]*)*")
OWN_PATHS = ("groups", "coordinators", "commands", "problems", "live", "static")

HEADERS: Mapping[str, str] = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self';"
    " connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


def check_prefix(prefix: str) -> str:
    """Return the prefix of all paths as it stands in links. UsageError for an invalid one, and for a path of the page.

    >>> check_prefix("/zkcoord/"), check_prefix("/")
    ('/zkcoord', '')
    """
    found = prefix.rstrip("/")
    if not PREFIX.fullmatch(found):
        raise UsageError(
            f"--http-path-prefix {prefix!r}: write a path of letters, digits, dots and dashes, as /zkcoord"
        )
    if found.split("/")[1:2] and found.split("/")[1] in OWN_PATHS:
        raise UsageError(
            f"--http-path-prefix {prefix!r} begins as a path of the page itself: choose another, as /zkcoord"
        )
    return found


def host_of(header: str) -> str | None:
    """Return the host of a `Host` header in small letters; None for an invalid header.

    >>> host_of("Localhost:8080"), host_of("[::1]:8080"), host_of("a@b")
    ('localhost', '::1', None)
    """
    try:
        parts = urlsplit(f"//{header}")
        if parts.netloc != header or parts.username is not None or parts.path or parts.query:
            return None
        _ = parts.port  # ValueError for an invalid port
    except ValueError:
        return None
    return parts.hostname


def answers_to(header: str, names: Collection[str]) -> bool:
    """True when the page answers to this `Host`: an address, localhost, or one of `names`.

    This prevents DNS rebinding: an attacker can make a name of theirs point to this address, but the browser then sends
    that name as `Host`. With an address as `Host` the attack is not possible.
    """
    host = host_of(header)
    if host is None:
        return False
    if host == "localhost" or host in names:
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def from_here(headers: Mapping[str, str]) -> bool:
    """True unless the browser says that the request comes from a page of another origin."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site != "same-origin":
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")


def read_token(file: str) -> str:
    """Return the token in a file: its only line. UsageError if others than its owner may read or write the file, and
    for a short or invalid token."""
    try:
        path = Path(file)
        token = path.read_text(encoding="utf-8").strip()  # before the rights: those of a folder are no fault
        if path.stat().st_mode & OTHERS_BITS:
            raise UsageError(f"{file}: others than its owner may read it: chmod 600 {file}")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{file}: the token cannot be read ({why}): name a file with one line") from error
    if len(token) < TOKEN_LEAST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{file}: a token has at least {TOKEN_LEAST} printable ASCII characters without spaces, in one line; for"
            " example: openssl rand -hex 20"
        )
    return token


@dataclass(slots=True)
class Tries:
    """Counts tries within a window that moves with the time, which is an argument."""

    most: int
    window_ms: int = WINDOW_MS
    _times: dict[str, deque[int]] = field(default_factory=dict)

    def over(self, whose: str, now_ms: int) -> bool:
        """True when `whose` has used up its tries within the window."""
        times = self._times.get(whose)
        while times and now_ms - times[0] >= self.window_ms:
            times.popleft()
        return times is not None and len(times) >= self.most

    def note(self, whose: str, now_ms: int) -> None:
        """Count one more try. If there are too many addresses, the oldest is forgotten; the limit on all addresses
        together still holds."""
        self._times.setdefault(whose, deque(maxlen=self.most)).append(now_ms)
        while len(self._times) > ADDRESSES_MAX:
            del self._times[next(iter(self._times))]


class Gate:
    """Lets requests with the token pass. Not thread-safe: only the server's loop calls it."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else _digest(token)
        self._wrong, self._wrong_all = Tries(WRONG_MAX), Tries(WRONG_MAX_ALL)
        self._done = Tries(ACTIONS_MAX)
        self._known: dict[str, None] = {}  # addresses that have sent the token: other addresses cannot lock them out

    @property
    def open(self) -> bool:
        """True when there is a token. Without a token there are no actions."""
        return self._token is not None

    def refusal(self, token: str, client: str, now_ms: int) -> tuple[int, str] | None:
        """Return status and reason if the action is refused. None: it is allowed, and counts as an action."""
        if self._token is None:
            return 403, "this page is read-only: it was started without a token (--http-token-file)"
        if self._wrong.over(client, now_ms) or (client not in self._known and self._wrong_all.over("", now_ms)):
            return 429, "too many wrong tokens: wait a minute, then try again"
        if not hmac.compare_digest(_digest(token), self._token):
            self._wrong.note(client, now_ms)
            self._wrong_all.note("", now_ms)
            return 403, "this is not the token that the page was started with: nothing was done"
        self._known[client] = None
        if self._done.over("", now_ms):
            return 429, f"more than {ACTIONS_MAX} actions within a minute: wait, then try again"
        self._done.note("", now_ms)
        return None


def _digest(token: str) -> bytes:
    """Return a digest, which always has the same length, so that a comparison always takes the same time."""
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
