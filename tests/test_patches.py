"""A test hands a limit in; it patches no constant of a module. The constants that tests still patch are listed here,
with the reasons."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parent
PATCH = re.compile(
    r"""(?:setattr|delattr|patch|object|multiple)\(\s*(?:[^\s,"']+,\s*["']|["'][\w.]+\.)(_?[A-Z][A-Z0-9_]*)["']"""
)
UNNAMED = re.compile(r"""setattr\(\s*[^\s,"']+,\s*(?!["'])\w+""")  # what it patches stands elsewhere

# A limit of a whole simulated world. To reach a coordinator's decisions, or a member's, it would be an argument of the
# role, of `decide`, and of two to four functions below, for these tests alone.
OF_WORLDS = {
    "ANNOUNCED_BYTES_MAX": 3,
    "DECISIONS_MAX": 1,
    "HELD_BYTES_MAX": 4,
    "ITEMS_MAX": 2,
    "KEPT_BYTES_MAX": 2,
    "READS_PER_REQUEST_MAX": 2,
    "UNDER_WAY_BYTES_MAX": 2,
    "WEIGHED_BYTES": 1,
}
# A limit deep below the public classes, which such a test runs on real servers: it would be a setting of theirs.
OF_PROGRAMS = {"FRAME_BYTES_MAX": 2, "POLL_TIMEOUT_MS": 1, "SILENT_MS": 1, "STATUS_AFTER_MS": 1, "UNREADABLE_MS": 2}
# A rule that is taken out, to see that it is missed.
OF_MUTATIONS = {"EMPTY_MS": 1, "GRACE_MS": 1, "START": 1}
# No limit: a clock or a kind of file that a machine lacks, the layout of a tree, what another package read at its
# import, an example's own constant.
OTHERS = {"BOOTTIME": 1, "DRAFT": 1, "MARK": 1, "O_TMPFILE": 1, "TASKS": 1, "_ENV_CONFIG": 1}
# In these, the names stand elsewhere: mutations, the threads and clocks of simulated programs, the limits of a storm,
# the function of an example, the ways in which Spark hands rows to the driver.
WITH_OTHER_NAMES = {
    "sim/mutations.py",
    "sim/seam.py",
    "sim/test_strange.py",
    "spark/test_examples_of_sinks.py",
    "spark/test_sink_sql_tasks.py",
}


def test_limits_are_handed_in_and_no_more_constants_are_patched_than_are_listed_with_a_reason() -> None:
    """If one is patched no more, lower its number here."""
    texts = {str(path.relative_to(TESTS)): path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    found = Counter(name for text in texts.values() for name in PATCH.findall(text))
    assert found == OF_WORLDS | OF_PROGRAMS | OF_MUTATIONS | OTHERS
    assert {name for name, text in texts.items() if UNNAMED.search(text)} == WITH_OTHER_NAMES
