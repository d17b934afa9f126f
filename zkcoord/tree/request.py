"""Requests and responses in a group's record, under the keys `wish` and `done`.

A tool writes a request, `{"who":…,"when":…,"run":…,"expiry_ms":…}`, for a deletion also with `"offsets":true`. A
coordinator writes the response, `{"run":…,"state":…,"reason":…}`, under the same name. Keys of other programs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zkcoord.core.decisions import WriteResponse
from zkcoord.core.record import PAUSE, GroupRecord


def responded(record: GroupRecord, response: WriteResponse) -> GroupRecord:
    """The record with this response."""
    done = {name: value for name, value in record.done.items() if name != response.request}
    if response.state is not None:
        reason = {"reason": response.reason} if response.reason else {}
        done[response.request] = {"run": response.run, "state": response.state, **reason}
    wish = {**record.wish, response.request: None} if response.ends else record.wish
    if response.pauses and wish.get(PAUSE) is None:
        wish = {**wish, PAUSE: {"who": "coordinator", "run": response.run, "why": response.reason}}
    return replace(record, wish=wish, done=done)


def requested(record: GroupRecord, name: str, request: Mapping[str, Any] | None) -> GroupRecord:
    """The record with this request; with None, without the request."""
    return replace(record, wish={**record.wish, name: request})
