"""Tells paths from URIs, as users give them to sinks."""

from __future__ import annotations

import re
from pathlib import Path

from zkcoord.errors import UsageError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_uri(place: str | Path) -> bool:
    """Return True for a URI, False for a path. Raises UsageError for a URI that lost a slash: a `Path` removes one.

    >>> is_uri("s3://lake/clicks"), is_uri("/data/clicks")
    (True, False)
    """
    if URI.match(str(place)):
        return True
    if SCHEME.match(str(place)):
        raise UsageError(f"{str(place)!r} is neither a path nor a URI, which has two slashes behind the colon")
    return False
