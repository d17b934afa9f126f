"""Addresses at which a program serves metrics or the page, and at which others ask for them: `HOST:PORT`."""

from __future__ import annotations

import re

from zkcoord.errors import UsageError

PORT_MAX = 65_535
HOST = re.compile(r"\[[^\[\]\s/]+\]|[^\[\]:\s/]*")


def spelled(host: str, port: int) -> str:
    """Return the address as it is written in options.

    >>> spelled("127.0.0.1", 9464), spelled("::1", 9464)
    ('127.0.0.1:9464', '[::1]:9464')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def nobody_can_listen(address: tuple[str, int], purpose: str, error: OSError) -> UsageError:
    """Return the error for an address that cannot be listened on: it is in use, or it is not this machine's."""
    why = str(error.strerror or error).partition(" (while")[0]  # Python's text goes on with the address
    return UsageError(f"nobody can listen on {spelled(*address)} for {purpose} ({why}): give another address")


def parse_address(text: object, what: str = "metrics", *, listens: bool = True) -> tuple[str, int]:
    """Return host and port. UsageError for an invalid address; `what` names its use in the message.

    `listens`: this program listens at the address, so host and port may be left open (empty, 0). If not, the address is
    of another program, and must have both.

    >>> parse_address("127.0.0.1:9464"), parse_address("[::1]:0"), parse_address(":9464")
    (('127.0.0.1', 9464), ('::1', 0), ('', 9464))
    """
    hint = ""
    if isinstance(text, str):
        host, colon, port = text.rpartition(":")
        numbered = port.isascii() and port.isdigit() and int(port) <= PORT_MAX
        if colon and numbered and HOST.fullmatch(host) and (listens or (host and int(port))):
            return host.removeprefix("[").removesuffix("]"), int(port)
        hint = "; an IPv6 address stands in brackets, as in [::1]:9464" if ":" in host and "[" not in host else ""
    also = " (:9464 listens everywhere)" if listens else ""
    example = f"give HOST:PORT, with a port up to {PORT_MAX}, for example 127.0.0.1:9464{also}"
    raise UsageError(f"{what} {text!r} is no address: {example}{hint}")
