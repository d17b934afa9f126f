"""Where metrics are served: `HOST:PORT`."""

from __future__ import annotations

from zkcoord.errors import UsageError

PORT_MAX = 65_535


def parse_address(text: object, what: str = "metrics") -> tuple[str, int]:
    """Return host and port. UsageError for what is no address; it says of what.

    >>> parse_address("127.0.0.1:9464"), parse_address("[::1]:0"), parse_address(":9464")
    (('127.0.0.1', 9464), ('::1', 0), ('', 9464))
    """
    if isinstance(text, str):
        host, colon, port = text.rpartition(":")
        if colon and port.isascii() and port.isdigit() and int(port) <= PORT_MAX and " " not in host:
            return host.removeprefix("[").removesuffix("]"), int(port)
    raise UsageError(f"{what} is {text!r}: give HOST:PORT, for example 127.0.0.1:9464 (:9464 listens everywhere)")
