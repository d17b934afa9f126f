"""Tells paths from URIs, as users give them to sinks."""

from __future__ import annotations

import re
from os import PathLike
from pathlib import Path

from zkcoord.errors import UsageError

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def is_uri(place: str | Path) -> bool:
    """Return True for a URI, False for a path. Raises UsageError for a URI that lost a slash: a `Path` removes one.

    >>> is_uri("s3://lake/clicks"), is_uri("/data/clicks")
    (True, False)
    """
    text = text_of(place)
    if URI.match(text):
        return True
    if SCHEME.match(text):
        raise UsageError(f"{text!r} is neither a path nor a URI, which has two slashes behind the colon")
    return False


def text_of(place: object) -> str:
    """Return a path or a URI as text. Raises UsageError for anything else, for example a setting that is empty."""
    if not isinstance(place, str | PathLike) or not str(place):
        raise UsageError(f"the place to write to is {place!r}; give a path, or a URI")
    return str(place)
