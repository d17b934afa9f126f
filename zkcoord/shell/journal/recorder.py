"""Records a loop: all inputs and outputs of each step, and now and then the loop itself (a checkpoint).

A loop is a pure function of its inputs, so a checkpoint and the later inputs determine everything: `replay` plays them
again, and must see the same outputs. A checkpoint leaves out the world around the loop (sessions, the inbox, the
receiver of events). A replay supplies its own.
"""

from __future__ import annotations

import io
import pickle
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol

from zkcoord.errors import CorruptError
from zkcoord.logs import plain
from zkcoord.settings import version
from zkcoord.shell.journal import answers, lines
from zkcoord.shell.loop import Loop
from zkcoord.shell.ports import Callbacks, Input, StoreFactory, StoreInput, TreeStore
from zkcoord.shell.role import Events
from zkcoord.tree.snapshot import Read
from zkcoord.tree.writes import Transaction


class Pages(Protocol):
    """Receives lines. The first line of each page is a checkpoint."""

    @property
    def turn(self) -> bool:
        """True when the next line must be a checkpoint: the page is new, or full."""

    def checkpoint(self, line: dict[str, Any]) -> None:
        """Begin a page with this line."""

    def write(self, line: dict[str, Any]) -> None:
        """Add a line to the page."""


class RecordedStore:
    """Notes the requests of one session, and passes them on if it has a store (a replay has none)."""

    def __init__(self, number: int, outputs: list[dict[str, Any]], store: TreeStore | None = None) -> None:
        self.number, self._outputs, self._store = number, outputs, store

    def read(self, token: int, reads: Sequence[Read]) -> None:
        """Ask for nodes."""
        self._outputs.append(lines.of_reads(token, reads))
        if self._store is not None:
            self._store.read(token, reads)

    def commit(self, token: int, transaction: Transaction) -> None:
        """Send one multi."""
        self._outputs.append(lines.of_commit(token, transaction))
        if self._store is not None:
            self._store.commit(token, transaction)

    def sync(self, token: int) -> None:
        """Ask the leader."""
        self._outputs.append({"sync": token})
        if self._store is not None:
            self._store.sync(token)

    def drop_connection(self) -> None:
        """Break the connection."""
        self._outputs.append({"drop_connection": self.number})
        if self._store is not None:
            self._store.drop_connection()

    def close(self) -> None:
        """End the session."""
        self._outputs.append({"close": self.number})
        if self._store is not None:
            self._store.close()


class RecordedCalls:
    """Notes the calls of a loop, and passes them on if it has a receiver."""

    def __init__(self, outputs: list[dict[str, Any]], calls: Callbacks | None = None) -> None:
        self._outputs, self._calls = outputs, calls

    def call(self, token: int, name: str, argument: Any) -> None:
        """Make a call."""
        self._outputs.append(answers.of_call(token, name, argument))
        if self._calls is not None:
            self._calls.call(token, name, argument)


class Recorder:
    """Wraps one loop: give the loop `open_session`, give its role `event`, and call `step` instead of the loop's
    step."""

    def __init__(
        self,
        pages: Pages | None,
        sessions: StoreFactory | None = None,
        put: Callable[[Input], None] = lambda item: None,
        events: Events = lambda name, fields: None,
        calls: Callbacks | None = None,
    ) -> None:
        """Writes nothing without pages, and sends nothing without sessions: a replay only notes the outputs."""
        self._pages, self._sessions, self._events = pages, sessions, events
        self.put = put  # the same object that the loop was given: a checkpoint recognises it by identity
        self.outputs: list[dict[str, Any]] = []  # outputs of the step under way
        self._stores = 0
        self._steps = 0
        self.calls = RecordedCalls(self.outputs, calls)
        self.open_session: StoreFactory = self._open_session
        self.event: Events = self._event

    def _open_session(self, sink: Callable[[StoreInput], None]) -> TreeStore:
        self._stores += 1
        self.outputs.append({"open": self._stores})
        store = self._sessions(sink) if self._sessions is not None else None
        return RecordedStore(self._stores, self.outputs, store)

    def _event(self, name: str, fields: Mapping[str, Any]) -> None:
        self.outputs.append({"event": name, "fields": plain(dict(fields))})
        self._events(name, fields)

    def step(self, loop: Loop, inputs: Sequence[Input], now_ms: int) -> int | None:
        """Make the loop's step, and write its line. The line is written even if the step raises: then it is needed
        most."""
        pages = self._pages
        if pages is not None and pages.turn:
            pages.checkpoint({**self.checkpoint(loop), "step": self._steps})
        self._steps += 1
        self.outputs.clear()
        taken = [lines.of_input(item) for item in inputs] if pages is not None else []
        raised = None
        try:
            return loop.step(inputs, now_ms)
        except BaseException as error:
            raised = repr(error)
            raise
        finally:
            if pages is not None:
                line = {"step": self._steps, "mono_ms": now_ms, "inputs": taken, "outputs": list(self.outputs)}
                pages.write(line if raised is None else {**line, "raised": raised})

    def checkpoint(self, loop: Loop) -> dict[str, Any]:
        """Return the loop with its role and everything that they know, as text, and the fields of each class in it."""
        data = io.BytesIO()
        pickler = _Pickler(data, self)
        pickler.dump((loop, self._stores))
        text = b64encode(zlib.compress(data.getvalue(), 1)).decode("ascii")
        return {"checkpoint": text, "fields": pickler.fields}

    def restore(self, line: Mapping[str, Any]) -> Loop:
        """Return the loop of a checkpoint's line, wrapped in this recorder. Raises CorruptError if it cannot be read.

        Use it only for journals that you trust: a checkpoint is a pickle.
        """
        try:
            data = io.BytesIO(zlib.decompress(b64decode(line["checkpoint"])))
            loop, self._stores = _Unpickler(data, self, line.get("fields", {})).load()
        except (
            pickle.UnpicklingError,
            zlib.error,
            ValueError,
            AttributeError,
            ImportError,
            EOFError,
            TypeError,
        ) as error:
            wrote = f"zkcoord {line.get('version', 'of a version that it does not say')}"
            raise CorruptError(
                f"a checkpoint that this program, zkcoord {version()}, cannot read ({error}): "
                f"replay with what wrote the journal, {wrote}"
            ) from error
        if not isinstance(loop, Loop):
            raise CorruptError(f"a checkpoint of something else: {type(loop).__name__}")
        return loop


Step = Callable[[Sequence[Input], int], int | None]


class Made(NamedTuple):
    """A loop, the receiver of its role's events, its step, and the receiver of its role's calls."""

    loop: Loop
    events: Events
    step: Step
    calls: Callbacks | None


def make_loop(
    pages: Pages | None,
    open_session: StoreFactory,
    put: Callable[[Input], None],
    events: Events,
    calls: Callbacks | None = None,
) -> Made:
    """Make a loop with its surroundings; with a recorder if there are pages."""
    if pages is None:
        loop = Loop(open_session, put)
        return Made(loop, events, loop.step, calls)
    recorder = Recorder(pages, open_session, put, events, calls)
    loop = Loop(recorder.open_session, put)
    return Made(loop, recorder.event, partial(recorder.step, loop), None if calls is None else recorder.calls)


def _fields_of(kind: type[Any]) -> list[str] | None:
    """The names of a value class's fields, in order; None for any other class. A pickle stores values by that order."""
    if is_dataclass(kind):
        return [each.name for each in fields(kind)]
    named: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return None if named is None else list(named)


class _Pickler(pickle.Pickler):
    """Leaves out the parts that belong to the world around a loop."""

    def __init__(self, file: io.BytesIO, recorder: Recorder) -> None:
        super().__init__(file)
        world: dict[str, Any] = {"open_session": recorder.open_session, "put": recorder.put, "event": recorder.event}
        world["calls"] = recorder.calls
        self._outside = {id(known): name for name, known in world.items()}
        self._met: set[type[Any]] = set()
        self.fields: dict[str, list[str]] = {}  # class -> the names of its fields

    def reducer_override(self, obj: Any) -> Any:
        """Note the fields of a class that is met for the first time. Everything is pickled as usual."""
        kind = type(obj)
        if kind not in self._met:
            self._met.add(kind)
            if (names := _fields_of(kind)) is not None:
                self.fields[f"{kind.__module__}.{kind.__qualname__}"] = names
        return NotImplemented

    def persistent_id(self, obj: Any) -> Any:
        """Return a name for an object that is left out. None: the object is written."""
        if isinstance(obj, RecordedStore):
            return ("store", obj.number)
        name = self._outside.get(id(obj))
        return None if name is None else (name, 0)


class _Unpickler(pickle.Unpickler):
    """Puts a recorder's parts in place of what was left out."""

    def __init__(self, file: io.BytesIO, recorder: Recorder, written: Mapping[str, list[str]]) -> None:
        """`written` holds the fields of classes when the pickle was written. Classes that are missing in it are not
        checked."""
        super().__init__(file)
        self._recorder, self._written = recorder, written

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        """Return a class. Raises UnpicklingError if its fields have changed since."""
        kind = super().find_class(module_name, global_name)
        name = f"{module_name}.{global_name}"
        if name in self._written and self._written[name] != _fields_of(kind):
            raise pickle.UnpicklingError(f"{name} has other fields now")
        return kind

    def persistent_load(self, pid: Any) -> Any:
        """Return the object that a name stands for."""
        name, number = pid
        if name == "store":
            return RecordedStore(number, self._recorder.outputs)
        return getattr(self._recorder, name)
