"""Passes functions to Spark's tasks by value, so workers need not have zkcoord."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from types import ModuleType
from typing import Any

Task = Callable[[Iterator[Any]], Iterator[Any]]
"""A function of a task's Arrow batches, as `mapInArrow` needs it."""

_pickling = Lock()  # the choice of what is pickled by value is global in the process; it is changed here for a moment


def by_value(task: Task, *modules: ModuleType) -> Task:
    """Return this function in a form that carries these modules with it, as far as it uses them."""
    from pyspark import cloudpickle

    with _pickling:
        for each in modules:
            cloudpickle.register_pickle_by_value(each)
        try:
            pickled = cloudpickle.dumps(task)
        finally:
            for each in modules:
                cloudpickle.unregister_pickle_by_value(each)

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import cloudpickle

        yield from cloudpickle.loads(pickled)(batches)

    return run
