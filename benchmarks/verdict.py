"""The end of every benchmark: figures compared with their goals, one line each, and the exit code."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OUT = Path(__file__).parent / "out"


@dataclass(frozen=True)
class Measure:
    """One figure. `at_most`: it shall not be above the goal; otherwise not below it. Without a goal it is only
    printed."""

    name: str
    value: float
    goal: float | None = None
    at_most: bool = False

    @property
    def holds(self) -> bool:
        """True if the goal is reached."""
        if self.goal is None:
            return True
        return self.value <= self.goal if self.at_most else self.value >= self.goal

    def __str__(self) -> str:
        goal = "-" if self.goal is None else f"{self.goal:g}"
        return f"{self.name} {self.value:.2f} {goal} {'ok' if self.holds else 'short'}"


def arguments(doc: str | None) -> argparse.ArgumentParser:
    """Return the parser with the options of all benchmarks; `doc` is the help text."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="under a minute; completes, but proves little")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measures there too")
    return parser


def conclude(measures: Sequence[Measure], details: Mapping[str, Any], json_file: Path | None) -> int:
    """Print one line for each measure; return the exit code, 0 when all goals are reached. The file has `details`,
    too."""
    if json_file is not None:
        rows = [
            {"measure": m.name, "value": m.value, "goal": m.goal, "at_most": m.at_most, "ok": m.holds} for m in measures
        ]
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps({"measures": rows, **details}, indent=1) + "\n", encoding="utf-8")
    for each in measures:
        print(each)
    sys.stdout.flush()
    return 0 if all(each.holds for each in measures) else 1
