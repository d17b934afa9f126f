"""The scene of the exactness tests whose batches go into PostgreSQL, from tasks."""

from __future__ import annotations

from pathlib import Path

from tests.integration.exact_scene import SparkScene
from tests.integration.exact_sql import PostgresSinks


class PostgresScene(SparkScene):
    """Every second misfortune comes when one table has the batch, and the other one does not have it yet."""

    def __init__(self, folder: Path, seed: int, where: str) -> None:
        super().__init__(folder, seed, postgres=where)
        assert isinstance(self.sinks, PostgresSinks)
        self.sinks.prepare()
        self.written = self.sinks.written

    def _in_batch(self) -> str:
        if self.random.random() < 0.5:
            return super()._in_batch()
        name = self._working()
        before = len(self.events(name, "batch_in_plain"))
        self.wait(f"a batch of {name} in one table", lambda: len(self.events(name, "batch_in_plain")) > before)
        return name
