"""Requests and responses in a group's record, under the keys `wish` and `done`, and the run that moves its offsets.

A tool writes a request, `{"who":…,"when":…,"run":…,"expiry_ms":…}`, for a deletion also with `"offsets":true`. A
coordinator writes the response, `{"run":…,"state":…,"reason":…}`, under the same name. Keys of other programs are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, TypeVar

from zkcoord.core.decisions import WriteResponse
from zkcoord.core.record import PAUSE, GroupRecord, Request, Response, StoreMigration
from zkcoord.tree.codec import beside

T = TypeVar("T", Request, Response, StoreMigration)


def value_of(kind: type[T], document: Mapping[str, Any]) -> T:
    """The value of this kind in a JSON object. What cannot be the value of a field is kept as unknown.

    >>> value_of(Response, {"run": "r1", "state": 7}) == Response(run="r1", unknown={"state": 7})
    True
    """
    known = {each.name: each.default for each in fields(kind) if each.name != "unknown"}
    usable = {key: value for key, value in document.items() if key in known and _usable(value, known[key])}
    return kind(**usable, unknown={key: value for key, value in document.items() if key not in usable})


def _usable(value: object, default: object) -> bool:
    if default is None:
        return isinstance(value, int) and not isinstance(value, bool) and value > 0
    return type(value) is type(default) and value != default


def document_of(value: Request | Response | StoreMigration) -> dict[str, Any]:
    """The JSON object: what is not the default, then the unknown keys."""
    known = {each.name: getattr(value, each.name) for each in fields(value) if each.name != "unknown"}
    defaults = {each.name: each.default for each in fields(value)}
    return beside({key: found for key, found in known.items() if found != defaults[key]}, value.unknown)


def responded(record: GroupRecord, response: WriteResponse) -> GroupRecord:
    """The record with this response."""
    name = response.request
    responses = {each: value for each, value in record.responses.items() if each != name}
    if response.state is not None:
        responses[name] = Response(run=response.run, state=response.state, reason=response.reason)
    after = requested(record, name, None) if response.ends else record
    if response.pauses and PAUSE not in after.requests:
        after = requested(after, PAUSE, Request(who="coordinator", run=response.run, why=response.reason))
    return replace(after, responses=responses)


def requested(record: GroupRecord, name: str, request: Request | None) -> GroupRecord:
    """The record with this request; with None, without the request."""
    others = {each: value for each, value in record.requests.items() if each != name}
    return replace(record, requests=others if request is None else {**others, name: request})
