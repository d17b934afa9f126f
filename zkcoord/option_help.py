"""Makes `help()` and editors show type and default of each option, for classes that take options as `**choices`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, ForwardRef, TypeVar

from zkcoord.core.given import NUMBER_MAX
from zkcoord.settings import MemberOptions, Setting

T = TypeVar("T")


class _Words(str):
    """The source text of a type. A signature shows it without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def with_options(kind: type[MemberOptions], hints: Mapping[str, Any]) -> Callable[[type[T]], type[T]]:
    """Return a class decorator. It adds the options of `kind` to the signature, and a line for each to the docstring.

    `hints`: option -> type, the annotations of the TypedDict that the class takes.
    """
    defaults = kind()
    known = {each.name: each.metadata["setting"] for each in fields(kind)}

    def complete(decorated: type[T]) -> type[T]:
        initializer: Any = decorated.__init__
        signature = inspect.signature(initializer)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        names = [name for name in known if name in hints and name not in signature.parameters]
        options = [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=getattr(defaults, name), annotation=_type(hints[name])
            )
            for name in names
        ]
        initializer.__signature__ = signature.replace(parameters=[*own, *options])
        lines = [
            f"    {name}: {_type(hints[name])} = {getattr(defaults, name)!r}{_allowed(known[name])}" for name in names
        ]
        above = inspect.getdoc(decorated)
        decorated.__doc__ = "\n".join(
            [*([above, ""] if above else []), "Options, each with its type and default:", *lines]
        )
        return decorated

    return complete


def _type(hint: Any) -> _Words:
    """Return the type as its author wrote it."""
    written = hint.__forward_arg__ if isinstance(hint, ForwardRef) else inspect.formatannotation(hint)
    return _Words(written)


def _allowed(setting: Setting) -> str:
    """Return the allowed values as text; "" if the type alone says it."""
    if setting.kind == "choice":
        return f" (one of {', '.join(setting.among)})"
    if setting.kind == "number":
        most = "on" if setting.most == NUMBER_MAX else f"to {setting.most}"
        return f" (from {setting.least} {most})"
    return ""
