"""A benchmark of this tree against the same benchmark of another one: two releases on one machine, in one run.

    python benchmarks/against.py FOLDER PROGRAM [--runs N] [--slower R] [--json FILE] [-- OPTION...]

FOLDER is a checkout of the other release (`git worktree add FOLDER REVISION`), PROGRAM the name of a file in
`benchmarks/` of both. Each round runs both programs, one after the other, in a process of its own with its own
checkout's code; the next round begins with the other one. OPTIONs go to both (`-- --runs 1 --point 10,1000`). Both
use this Python's packages.

Ends with one line a measure that both have: the median here over the median there, over all rounds. A measure whose
goal is an upper one must not be more than R times as large (1.1 by default), any other one not less than 1/R.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from common import whole
from verdict import OUT, Measure, arguments, conclude

HERE = Path(__file__).resolve().parents[1]
SLOWER = 1.1
"""How many times as large a figure may be: medians of two series of the same code differ by up to this factor."""

Rows = dict[str, dict[str, Any]]


def run(checkout: Path, program: str, options: list[str]) -> Rows:
    """Run a checkout's program once; return its measures by name. RuntimeError if it writes none."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "measures.json"
        (Path(folder) / "zkcoord_migrations").symlink_to(checkout / "migrations")
        command = [sys.executable, str(checkout / "benchmarks" / f"{program}.py"), *options, "--json", str(file)]
        environment = {**os.environ, "PYTHONPATH": f"{checkout}{os.pathsep}{folder}"}
        done = subprocess.run(command, cwd=checkout, env=environment, stdout=sys.stderr)
        if not file.exists():
            raise RuntimeError(f"{program} of {checkout} ended with {done.returncode}, and wrote no measures")
        return {row["measure"]: row for row in json.loads(file.read_text(encoding="utf-8"))["measures"]}


def compare(here: list[Rows], there: list[Rows], slower: float) -> list[Measure]:
    """Return the medians here over those there, for each measure that all runs have and whose median there is not
    zero."""
    names = [name for name in here[0] if all(name in rows for rows in (*here, *there))]
    found = []
    for name in names:
        ours, theirs = (median(rows[name]["value"] for rows in runs) for runs in (here, there))
        print(f"{name:<44} here {ours:>12.3f} there {theirs:>12.3f}")
        if theirs:
            at_most = bool(here[0][name].get("at_most", True))
            goal = slower if at_most else 1 / slower
            found.append(Measure(f"{name}_over_before", ours / theirs, goal, at_most=at_most))
    return found


def main() -> int:
    """Run both programs in turns, compare them, and print."""
    parser = arguments(__doc__)
    parser.add_argument("folder", type=Path, help="a checkout of the other release")
    parser.add_argument("program", help="the name of a benchmark, such as handover")
    parser.add_argument("--runs", type=whole, metavar="N", help="rounds: 5, with --quick 1")
    parser.add_argument("--slower", type=float, default=SLOWER, help="how many times as large a figure may be")
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    chosen, options = parser.parse_args(words[:cut]), words[cut + 1 :]
    there = chosen.folder.resolve()
    for checkout in (HERE, there):
        if not (checkout / "benchmarks" / f"{chosen.program}.py").is_file():
            parser.error(f"{checkout} has no benchmark {chosen.program!r}")
    options += ["--quick"] if chosen.quick else []
    rounds = chosen.runs or (1 if chosen.quick else 5)
    here_runs: list[Rows] = []
    there_runs: list[Rows] = []
    for number in range(rounds):
        turns = [(HERE, here_runs), (there, there_runs)]
        for checkout, found in turns if number % 2 == 0 else reversed(turns):
            found.append(run(checkout, chosen.program, options))
            print(f"round {number}, {checkout}: load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    measures = compare(here_runs, there_runs, chosen.slower)
    details = {"rounds": rounds, "here": here_runs, "there": there_runs}
    return conclude(measures, details, chosen.json or OUT / f"against_{chosen.program}.json")


if __name__ == "__main__":
    sys.exit(main())
