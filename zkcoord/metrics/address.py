"""Where metrics are served: `HOST:PORT`."""

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


def parse_address(text: object, what: str = "metrics") -> tuple[str, int]:
    """Return host and port. UsageError for what is no address; it says of what.

    >>> parse_address("127.0.0.1:9464"), parse_address("[::1]:0"), parse_address(":9464")
    (('127.0.0.1', 9464), ('::1', 0), ('', 9464))
    """
    hint = ""
    if isinstance(text, str):
        host, colon, port = text.rpartition(":")
        if colon and port.isascii() and port.isdigit() and int(port) <= PORT_MAX and HOST.fullmatch(host):
            return host.removeprefix("[").removesuffix("]"), int(port)
        hint = "; an IPv6 address stands in brackets, as in [::1]:9464" if ":" in host and "[" not in host else ""
    example = "for example 127.0.0.1:9464 (:9464 listens everywhere)"
    raise UsageError(f"{what} is {text!r}: give HOST:PORT, {example}{hint}")
