"""Where a program serves metrics or the page, and where it is asked for them: `HOST:PORT`."""

from __future__ import annotations

import re

from zkcoord.errors import UsageError

PORT_MAX = 65_535
HOST = re.compile(r"\[[^\[\]\s/]+\]|[^\[\]:\s/]*")


def spelled(host: str, port: int) -> str:
    """Return the address as options take it.

    >>> spelled("127.0.0.1", 9464), spelled("::1", 9464)
    ('127.0.0.1:9464', '[::1]:9464')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def nobody_can_listen(address: tuple[str, int], purpose: str, error: OSError) -> UsageError:
    """Return what is said of an address that cannot be listened on: it is taken, or it is not this machine's."""
    why = str(error.strerror or error).partition(" (while")[0]  # Python adds the address once more
    return UsageError(f"nobody can listen on {spelled(*address)} for {purpose} ({why}): give another address")


def parse_address(text: object, what: str = "metrics", *, listens: bool = True) -> tuple[str, int]:
    """Return host and port. UsageError for what is no address; it says of what. `listens`: else it is asked there.

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
