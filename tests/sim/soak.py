"""`scripts/simulate`: storms with one seed after the other until told to stop, on every core.

The exit code says what broke, and for each seed that failed the line is printed that repeats it:

    0   nothing            1   an invariant of safety (two readers, a lost or a foreign write, a skipped record, ...)
    2   a wrong call       3   liveness: the world did not come to rest, or something awaited did not come
                           4   the product raised an error that nobody expects
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tests.sim.course import Course, HaltError, course, told
from tests.sim.families import Family, families
from tests.sim.features import Feature, Seen, Sight
from tests.sim.garbage import collect_between, collect_never
from tests.sim.guided import Played, Search, search
from tests.sim.options import SEED_VARIABLE
from tests.sim.scenarios import announcing_storm, storm
from tests.sim.store_scene import store_storm
from tests.sim.test_beside_kafka import kafka_storm
from tests.sim.test_beside_storms import beside
from tests.sim.test_churn import churn, draft, life, slow, static
from tests.sim.test_claims import claiming
from tests.sim.test_edited import edited
from tests.sim.test_flapping import claims_flapping, flapping
from tests.sim.test_hand_over_faults import handing_over_storm
from tests.sim.test_hung import hung
from tests.sim.test_journal import journaled
from tests.sim.test_late_commits import late_storm
from tests.sim.test_mirror_storms import mirrored_storm
from tests.sim.test_mixed import mixed
from tests.sim.test_mixed_storms import mixed_storm
from tests.sim.test_move_storms import moving_storm
from tests.sim.test_old_storms import old_storm
from tests.sim.test_program_stores import in_dual, in_kafka
from tests.sim.test_programs import away, plain, polling, sparkling, streaming
from tests.sim.test_replay_quota import narrow
from tests.sim.test_reset_storms import resetting_storm
from tests.sim.test_source_switch import switching_storm
from tests.sim.test_stolen_storms import stolen_storm
from tests.sim.test_store_tool import tools_storm
from tests.sim.test_strange import strange
from tests.sim.world import SimulationError

SAFETY, LIVENESS, BUG = 1, 3, 4
NAMES = {
    SAFETY: "an invariant of safety broke",
    LIVENESS: "it did not come to rest",
    BUG: "the product raised an error",
}
LIVENESS_WORDS = ("did not come", "asks to be called at once")
SCENES: dict[str, tuple[Callable[[int], object], str]] = {
    "storm": (storm, "tests/sim/test_seeds.py::test_every_storm_ends_in_a_calm"),
    "churn": (churn, "tests/sim/test_churn.py::test_a_storm_with_churn_ends_in_a_calm"),
    "static": (static, "tests/sim/test_churn.py::test_a_storm_with_static_members_ends_in_a_calm"),
    "life": (life, "tests/sim/test_churn.py::test_a_storm_with_all_of_a_groups_life"),
    "draft": (draft, "tests/sim/test_churn.py::test_a_storm_with_members_of_the_draft_ends_in_a_calm"),
    "slow": (slow, "tests/sim/test_churn.py::test_a_storm_with_slow_callbacks_ends_in_a_calm"),
    "hung": (hung, "tests/sim/test_hung.py::test_a_storm_with_programs_that_hang_ends_in_a_calm"),
    "flapping": (flapping, "tests/sim/test_flapping.py::test_a_storm_of_flapping_links_ends_in_a_calm"),
    "edited": (edited, "tests/sim/test_edited.py::test_a_storm_in_which_owners_are_edited_ends_in_a_calm"),
    "strange": (strange, "tests/sim/test_strange.py::test_a_storm_in_strange_conditions_ends_in_a_calm"),
    "announcing": (
        announcing_storm,
        "tests/sim/test_replay.py::test_a_sink_keyed_by_ranges_is_exact_whoever_dies_in_a_storm",
    ),
    "narrow": (
        narrow,
        "tests/sim/test_replay_quota.py::test_a_sink_is_exact_in_a_storm_in_which_hardly_a_range_has_room",
    ),
    "late commits": (late_storm, "tests/sim/test_late_commits.py::test_a_storm_of_late_commits_ends_in_a_calm"),
    "mirrored": (mirrored_storm, "tests/sim/test_mirror_storms.py::test_a_storm_over_mirrored_topics_ends_in_a_calm"),
    "switching": (
        switching_storm,
        "tests/sim/test_source_switch.py::test_a_storm_in_which_people_switch_the_source_ends_in_a_calm",
    ),
    "mixed": (mixed, "tests/sim/test_mixed.py::test_a_sink_is_exact_in_a_storm_of_everything"),
    "claims-flapping": (
        claims_flapping,
        "tests/sim/test_flapping.py::test_a_storm_of_flapping_links_over_claims_ends_in_a_calm",
    ),
    "stolen": (
        stolen_storm,
        "tests/sim/test_stolen_storms.py::test_a_storm_over_claims_beside_old_members_cuts_no_range_anew",
    ),
    "claiming": (claiming, "tests/sim/test_claims.py::test_a_storm_over_claims_ends_in_a_calm"),
    "beside old": (
        mixed_storm,
        "tests/sim/test_mixed_storms.py::test_a_mixed_storm_keeps_one_reader_and_comes_to_rest_with_everything_read",
    ),
    "old": (
        old_storm,
        "tests/sim/test_old_storms.py::test_a_poke_heals_whatever_a_storm_left_of_a_group_of_old_members",
    ),
    "beside kafka": (
        kafka_storm,
        "tests/sim/test_beside_kafka.py::test_a_storm_over_zookeeper_and_kafka_skips_nothing_and_comes_to_rest",
    ),
    "beside": (beside, "tests/sim/test_beside_storms.py::test_a_storm_of_old_members_and_ours_ends_in_a_calm"),
    "stores": (store_storm, "tests/sim/test_store_storms.py::test_offsets_survive_a_storm_while_the_group_is_moved"),
    "tools": (
        tools_storm,
        "tests/sim/test_store_tool.py::test_the_store_tool_moves_no_offset_in_a_storm_and_comes_to_its_store",
    ),
    "resets": (
        resetting_storm,
        "tests/sim/test_reset_storms.py::test_a_storm_in_which_offsets_are_reset_goes_on_where_the_resets_say",
    ),
    "hand-overs": (
        handing_over_storm,
        "tests/sim/test_hand_over_faults.py::test_f160_no_offset_is_lost_in_a_storm_of_hand_overs_and_returns",
    ),
    "moves": (
        moving_storm,
        "tests/sim/test_move_storms.py::test_a_group_that_is_moved_to_and_fro_in_a_storm_is_never_read_in_both_trees",
    ),
    "plain": (plain, "tests/sim/test_programs.py::test_a_storm_of_plain_programs_ends_in_a_calm"),
    "polling": (polling, "tests/sim/test_programs.py::test_a_storm_of_polling_programs_ends_in_a_calm"),
    "spark": (sparkling, "tests/sim/test_programs.py::test_a_storm_of_spark_programs_ends_in_a_calm"),
    "streaming": (streaming, "tests/sim/test_programs.py::test_a_storm_of_streaming_queries_ends_in_a_calm"),
    "away": (away, "tests/sim/test_programs.py::test_a_storm_while_brokers_hardly_answer_ends_in_a_calm"),
    "programs in dual": (in_dual, "tests/sim/test_program_stores.py::test_a_storm_of_programs_in_dual_ends_in_a_calm"),
    "programs in kafka": (
        in_kafka,
        "tests/sim/test_program_stores.py::test_a_storm_of_programs_in_kafka_ends_in_a_calm",
    ),
    "journal": (journaled, "tests/sim/test_journal.py::test_every_page_of_a_storm_played_again_puts_out_the_same"),
}
PROGRESS_SECONDS = 10


class Result(NamedTuple):
    """The result of one seed; `kind` 0: no failure."""

    scene: str
    seed: int
    kind: int
    text: str


def play(job: tuple[str, int]) -> Result:
    """Play one seed of one scene."""
    name, seed = job
    collect_between()
    scene = SCENES[name][0]
    try:
        getattr(scene, "__wrapped__", scene)(seed)  # `scene` may be cached: worlds would stay
    except SimulationError as error:
        text = str(error)
        first = text.partition("\n")[0]
        return Result(name, seed, LIVENESS if any(words in first for words in LIVENESS_WORDS) else SAFETY, text)
    except HaltError:
        return Result(name, seed, 0, "")
    except Exception:
        return Result(name, seed, BUG, traceback.format_exc())
    return Result(name, seed, 0, "")


def repeat_line(result: Result) -> str:
    """The command that plays the seed again."""
    return f"{SEED_VARIABLE}={told(result.seed)} .venv/bin/python -m pytest '{SCENES[result.scene][1]}'"


def report(result: Result, verbose: bool) -> None:
    """Print the failure and the command that repeats it."""
    lines = result.text.splitlines()
    shown = lines if verbose else lines[:1] if result.kind != BUG else lines[-1:]
    print(f"{result.scene} seed {told(result.seed)}: {NAMES[result.kind]}", *shown, sep="\n  ")
    print(f"  repeat with: {repeat_line(result)}", flush=True)


def jobs(first: int, seeds: int | None, scenes: Iterable[str] = SCENES) -> Iterator[tuple[str, int]]:
    """These scenes (default: all) for each seed; without end if `seeds` is None."""
    for seed in count(first) if seeds is None else range(first, first + seeds):
        for scene in scenes:
            yield scene, seed


def play_looking(job: tuple[str, list[Course]]) -> list[tuple[Result, dict[Feature, Sight]]]:
    """Play courses of a scene that share a long part, and collect their features."""
    scene, courses = job
    if len(courses) > 1:
        seen = Seen()
        family = Family(courses, seen.look)
        found = family.answer(lambda: (play((scene, family)), seen.features))
        if found:
            return [(result._replace(seed=each), seen) for each, (result, seen) in zip(courses, found, strict=True)]
    looks = [(each, Seen()) for each in courses]
    return [(play((scene, each.seen_by(seen.look)))._replace(seed=each), seen.features) for each, seen in looks]


Plays = Callable[[Callable[[tuple[str, list[Course]]], Any], Iterable[tuple[str, list[Course]]]], Iterable[Any]]
"""A `map`, as a pool has it: answers come in their order."""


def guided(
    first: int,
    count: int | None,
    scenes: Iterable[str],
    plays: Plays,
    corpus: Path | None,
    verbose: bool,
    at_once: int | None = None,
) -> int:
    """Search each scene in turn, one round at a time. Returns the exit code of the worst failure."""
    kinds, played, began = set[int](), 0, time.monotonic()
    searches = {scene: Search(first, _courses(corpus, scene)) for scene in scenes}

    def of(scene: str) -> Iterator[bool]:
        def playing(courses: Iterable[Course]) -> Iterator[Played]:
            for answers in plays(play_looking, [(scene, each) for each in families(courses)]):
                for result, features in answers:
                    if result.kind:
                        kinds.add(result.kind)
                        report(result, verbose)
                    yield Played(Course(result.seed, getattr(result.seed, "events", ())), features, bool(result.kind))

        for each, new in search(searches[scene], count, playing, at_once):
            if new and corpus is not None:
                with (corpus / f"{scene}.txt").open("a", encoding="ascii") as file:
                    file.write(f"{told(each.course)}\n")
            yield new

    running = [of(scene) for scene in searches]
    try:
        while running:
            running = [each for each in running if next(each, None) is not None]
            played += len(running)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    kept = sum(len({each.course for views in s.kept.values() for each in views}) for s in searches.values())
    known = sum(len(each.known) for each in searches.values())
    print(f"{played} courses from seed {first} on in {time.monotonic() - began:.0f} s, {known} features, {kept} kept")
    return min(kinds, default=0)


def _courses(corpus: Path | None, scene: str) -> list[Course]:
    """The courses of a scene that an earlier search has kept."""
    file = corpus / f"{scene}.txt" if corpus is not None else None
    return [course(line) for line in file.read_text().splitlines()] if file is not None and file.exists() else []


def _begin_worker() -> None:
    """Signals to the program's whole process group (Ctrl-C, `timeout`) do not reach a worker. It ends with its pool."""
    os.setpgrp()
    collect_never()
    logging.getLogger("zkcoord").addHandler(logging.NullHandler())  # programs in a storm log many warnings
    logging.getLogger("zkcoord").propagate = False


def _stop_once(_number: int, _frame: object) -> None:
    """The first signal ends the play. Further signals do not break off the end (`timeout` sends two)."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def soak(first: int, wanted: Iterable[tuple[str, int]], workers: int, verbose: bool) -> int:
    """Play until the jobs end or the user stops it. Returns the exit code of the worst failure."""
    played, kinds, began, told = 0, set[int](), time.monotonic(), time.monotonic()
    context = get_context("spawn")  # so workers inherit nothing from this process, its signal handlers above all
    try:
        with context.Pool(workers, initializer=_begin_worker) as pool:
            for result in pool.imap_unordered(play, wanted):
                played += 1
                if result.kind:
                    kinds.add(result.kind)
                    report(result, verbose)
                if time.monotonic() - told > PROGRESS_SECONDS:
                    told = time.monotonic()
                    rate = played / (told - began)
                    print(
                        f"{played} worlds, {rate:.1f} a second, up to seed {result.seed}", file=sys.stderr, flush=True
                    )
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    verdict = "no failure" if not kinds else "; ".join(NAMES[kind] for kind in sorted(kinds))
    seconds = time.monotonic() - began
    print(f"{played} worlds from seed {first} on in {seconds:.0f} s, {played / seconds:.1f} a second: {verdict}")
    return min(kinds, default=0)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__, formatter_class=_Plain)
    parser.add_argument("--first", type=int, help="the first seed (default: drawn from the time)")
    parser.add_argument("--seeds", type=int, help="how many (default: until Ctrl-C or SIGTERM)")
    parser.add_argument("--scene", action="append", choices=SCENES, help="only this one, or several (default: all)")
    parser.add_argument("--guided", action="store_true", help="vary what reaches something new (--seeds: courses)")
    parser.add_argument("--corpus", type=Path, metavar="FOLDER", help="of --guided: where it keeps courses")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("-v", "--verbose", action="store_true", help="the whole trace of each failure")
    chosen = parser.parse_args(arguments)
    if chosen.workers < 1 or (chosen.seeds is not None and chosen.seeds < 1):
        parser.error("--workers and --seeds are 1 or more")
    first = int(time.time()) if chosen.first is None else chosen.first
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop_once)
    if chosen.guided:
        if chosen.corpus is not None:
            chosen.corpus.mkdir(parents=True, exist_ok=True)
        with get_context("spawn").Pool(chosen.workers, initializer=_begin_worker) as pool:
            return guided(first, chosen.seeds, chosen.scene or SCENES, pool.imap, chosen.corpus, chosen.verbose)
    return soak(first, jobs(first, chosen.seeds, chosen.scene or SCENES), chosen.workers, chosen.verbose)


class _Plain(argparse.RawDescriptionHelpFormatter):
    """A help formatter that keeps the table of exit codes."""


if __name__ == "__main__":
    sys.exit(main())
