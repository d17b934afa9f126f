"""A setting is defined in one place: type checkers, the pages, the command line and queries take it from there."""

from __future__ import annotations

import inspect
import pydoc
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from zkcoord.consumer import Consumer
from zkcoord.errors import UsageError
from zkcoord.kafka.consumer import KafkaConsumer
from zkcoord.settings import MemberChoices, MemberOptions
from zkcoord.spark.consumer import SparkConsumer
from zkcoord.spark.options import Choices, Options

PAGE = (Path(__file__).parent.parent / "docs/consumers.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("typed", "options"), [(MemberChoices, MemberOptions), (Choices, Options)])
def test_the_typed_arguments_are_the_options(typed: Any, options: Any) -> None:
    told = {name: kind.__forward_arg__ for name, kind in typed.__annotations__.items()}
    assert told == {each.name: each.type for each in fields(options)}
    assert list(told) == [each.name for each in fields(options)]


@pytest.mark.parametrize("options", [MemberOptions, Options])
def test_the_pages_tables_have_each_setting_with_its_default(options: Any) -> None:
    rows = re.findall(r"^\| (`[a-z_`, ]+`) \| (.*?) \|", PAGE, re.MULTILINE)
    told = {name: default for names, default in rows for name in re.findall(r"`(\w+)`", names)}
    shown = {each.name: shown_default(each.default) for each in fields(options) if each.name != "warm_up"}
    assert {name: text for name, text in shown.items() if text not in told.get(name, "")} == {}
    assert shown.keys() <= told.keys()


def shown_default(default: object) -> str:
    """The default as the tables show it; "" for a default without a plain value."""
    if isinstance(default, bool):
        return "yes" if default else "no"
    if isinstance(default, int):
        return f"{default:,}"
    return f'`"{default}"`' if isinstance(default, str) else ""


@pytest.mark.parametrize(
    ("shown", "options", "own"),
    [(Consumer, MemberOptions, 12), (SparkConsumer, Options, 6), (KafkaConsumer, MemberOptions, 8)],
)
def test_help_of_a_consumer_shows_each_option_with_its_type_and_default(shown: type, options: Any, own: int) -> None:
    text = re.sub(r"\s*\|  ", "\n", pydoc.render_doc(shown, renderer=pydoc.plaintext))
    signature = inspect.signature(shown)

    for each in fields(options):
        given = signature.parameters[each.name]
        assert (given.default, str(given.annotation), given.kind) == (each.default, each.type, given.KEYWORD_ONLY)
        assert f"    {each.name}: {each.type} = {each.default!r}" in text
    names = list(signature.parameters)
    assert names[own:] == [each.name for each in fields(options) if each.name not in names[:own]]
    assert "threads: int = 1 (from 1 to 65536)" in text
    assert "threads: int = 1, instance: str | None = None, hold_ms: int = 0" in str(signature)


@pytest.mark.parametrize("each", fields(MemberOptions), ids=lambda each: each.name)
def test_none_is_a_value_only_of_settings_that_have_it_as_their_default(each: Any) -> None:
    options = MemberOptions(**{each.name: None})

    if each.default is None or each.metadata["setting"].kind == "other":
        options.check_values()
    else:
        with pytest.raises(UsageError, match=each.name):
            options.check_values()
