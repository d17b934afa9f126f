"""Wishes in a group's record: tools write them, a coordinator reads and answers them.

A wish is `{"who":…,"when":…,"run":…,"expiry_ms":…}`, of a deletion also `"offsets":true`; an answer is
`{"run":…,"state":…,"reason":…}` under the same name in `done`. Keys of others are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from zkcoord.core.decisions import AnswerWish
from zkcoord.core.record import GroupRecord


def answered(record: GroupRecord, answer: AnswerWish) -> GroupRecord:
    """The record after an answer."""
    done = {name: value for name, value in record.done.items() if name != answer.wish}
    if answer.state is not None:
        done[answer.wish] = {"run": answer.run, "state": answer.state}
        if answer.reason:
            done[answer.wish] = {"run": answer.run, "state": answer.state, "reason": answer.reason}
    wish = {**record.wish, answer.wish: None} if answer.ends else record.wish
    return replace(record, wish=wish, done=done)


def wished(record: GroupRecord, name: str, wish: Mapping[str, Any] | None) -> GroupRecord:
    """The record with this wish, or (None) with it taken back."""
    return replace(record, wish={**record.wish, name: wish})
