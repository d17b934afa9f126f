"""The last hand-overs of a group. The serving coordinator keeps them, and is asked for them."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http.client import HTTPException
from typing import Any

from zkcoord.core.handovers import MOMENTS, PARTS, STAGES
from zkcoord.errors import UnavailableError, UsageError

COLUMNS = ("AT", "PARTITION", "STOP", "SEE", "FINISH", "COMMIT", "GRANT", "START", "UNREAD", "FIRST", "FROM", "TO")
NUMBERS = COLUMNS[2:10]
"""The columns that are times, in ms."""

TIMES = (
    ("decided_ms", "released_ms"),
    ("decided_ms", "seen_ms"),
    ("seen_ms", "stopped_ms"),
    ("stopped_ms", "released_ms"),
    ("released_ms", "granted_ms"),
    ("granted_ms", "acknowledged_ms"),
    ("released_ms", "acknowledged_ms"),
    ("acknowledged_ms", "first_record_ms"),
)
"""The moments between which each of NUMBERS is measured: from the first to the second."""

ANSWER_SECONDS = 10.0
NOT_THERE = 404
SERVER = "zkcoord"
"""The beginning of the HTTP header `Server` of zkcoord's metrics endpoints."""


def fetch_handovers(
    addresses: Sequence[str], group: str, last: int, wait_seconds: float = ANSWER_SECONDS
) -> list[dict[str, Any]]:
    """Return the group's last hand-overs, oldest first. Ask the coordinators one after the other until one answers.

    Raise UsageError if no coordinator that answers knows the group, or if an answer is not a coordinator's. Raise
    UnavailableError if none answers within `wait_seconds`.
    """
    answered, why = False, ""
    for address in addresses:
        url = f"http://{address}/handovers?{urllib.parse.urlencode({'group': group, 'last': last})}"
        try:
            with urllib.request.urlopen(url, timeout=wait_seconds) as answer:
                found = [json.loads(line) for line in answer.read().decode("utf-8").splitlines()]
                return found[-last:]  # an older coordinator answers with all of them
        except urllib.error.HTTPError as error:
            error.close()
            ours = error.headers.get("Server", "").startswith(SERVER)
            answered = answered or (ours and error.code == NOT_THERE)
            why = f"{address}: HTTP {error.code}" if ours else f"{address} is no program's address for metrics"
        except (OSError, HTTPException) as error:  # also one that ends in the middle of its answer
            why = f"{address}: {_reason(error)}"
        except ValueError as error:
            raise UsageError(f"{address} is no coordinator's address for metrics: {error}") from error
    if answered:
        raise UsageError(f"no coordinator at {', '.join(addresses)} serves a group {group!r}: see `zkcoord group list`")
    raise UnavailableError(f"no coordinator answers ({why}): start it with --metrics, or give its address")


def _reason(error: Exception) -> str:
    """Return why there is no answer, without the name of Python's class and without the error's number."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return cause.strerror or str(cause) if isinstance(cause, OSError) else str(cause).strip()


def begun_ms_of(handover: Mapping[str, Any]) -> int:
    """Return the hand-over's first moment, in ms since 1970; 0 if it has none."""
    return next((int(at_ms) for name in MOMENTS if (at_ms := handover.get(name)) is not None), 0)


def row(handover: Mapping[str, Any], *, dated: bool = False) -> list[Any]:
    """Return one hand-over as a row of COLUMNS. `dated`: AT has the date, too."""
    begun_ms = begun_ms_of(handover)
    shape = "%Y-%m-%d %H:%M:%S" if dated else "%H:%M:%S"
    at = time.strftime(shape, time.localtime(begun_ms / 1000)) + f".{begun_ms % 1000:03d}"
    times = [_between(handover, *each) for each in TIMES]
    partition = f"{handover['topic']}-{handover['partition']}"
    return [at, partition, *times, handover["from"], handover["to"]]


def why_stopped(handover: Mapping[str, Any]) -> str:
    """Say how the time of the stop was used; "" if the consumer does not tell."""
    took = {name: _between(handover, *moments) for name, moments in PARTS["stop"].items()}
    told = ", ".join(f"{name} {took_ms}" for name, took_ms in took.items() if took_ms is not None)
    whole_ms = _between(handover, *STAGES["stop"])
    return f"its stop took {whole_ms} ms: {told}" if whole_ms is not None and took["finish"] is not None else ""


def _between(handover: Mapping[str, Any], begun: str, ended: str) -> int | None:
    """Return the ms between two moments; None if the coordinator, of another release, does not tell both."""
    begun_ms, ended_ms = handover.get(begun), handover.get(ended)
    return None if begun_ms is None or ended_ms is None else int(ended_ms - begun_ms)
