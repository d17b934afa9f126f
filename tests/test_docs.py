"""The pages are right: the files, headings, commands, options and events that they name exist, and their examples
compile and decode."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import click
import pytest

from zkcoord.cli.main import cli
from zkcoord.cli.options import COMMON, commands_of
from zkcoord.core.decisions import StateEvent
from zkcoord.core.state import GroupState
from zkcoord.tree.command import decode_command, encode_command, is_refused
from zkcoord.tree.instance import decode_instance, encode_instance
from zkcoord.tree.record import KEYS, POLICY_KEYS, decode_record, encode_record
from zkcoord.tree.registration import MARKER, decode_registration, encode_registration
from zkcoord.tree.schema import decode_schema, encode_schema
from zkcoord.tree.state import decode_state, encode_state
from zkcoord.tree.status import decode_status, encode_status
from zkcoord.tree.topic import decode_mark, encode_mark
from zkcoord.tree.topic_mirror import decode_root, encode_root

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
PROTOCOL = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
COMMANDS = (ROOT / "docs/commands.md").read_text(encoding="utf-8")
PERFORMANCE = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FOLDERS = ("zkcoord/", "migrations/", "tests/", "scripts/", "benchmarks/", "docs/", "examples/")

CODECS: dict[str, Callable[[bytes], bytes | None]] = {
    "Schema": lambda data: encode_schema(decode_schema(data)),
    "Registration": lambda data: encode_registration(decode_registration(data)),
    "Command": lambda data: data if is_refused(data) else encode_command(decode_command(data)),
    "Status": lambda data: encode_status(decode_status(data)),
    "Owner, offset, epoch, topic mark": lambda data: (
        encode_root(decode_root(data))
        if b'"whole"' in data
        else encode_mark(mark)
        if (mark := decode_mark(data))
        else None
    ),
    "Group record and group state": lambda data: (
        encode_record(decode_record(data))
        if b'"policy"' in data
        else encode_instance(decode_instance(data, 0))
        if b'"share"' in data
        else encode_state(decode_state(data))
    ),
}


def anchor(heading: str) -> str:
    """The anchor of a heading: lower case, dashes instead of spaces, and only letters, digits, - and _."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    """The anchors of a page."""
    return {anchor(found) for found in re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)}


def section(text: str, title: str) -> str:
    """The text below a heading, up to the next heading of its level or above."""
    heading = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert heading, f"there is no heading {title!r}"
    rest = text[heading.end() :]
    after = re.search(rf"^#{{1,{len(heading[1])}}} ", rest, re.MULTILINE)
    return rest[: after.start()] if after else rest


def spans(text: str) -> list[str]:
    """The texts that are set as code within lines."""
    return re.findall(r"`([^`\n]+)`", text)


def examples(text: str) -> Iterator[bytes]:
    """The JSON objects in a section, as one line each: from indented blocks, perhaps of several lines, or from within a
    line."""
    blocks = ["".join(line.strip() for line in block) for block in _indented(text)]
    for found in [*blocks, *(span for span in spans(text) if span.startswith('{"version"'))]:
        if found.startswith("{"):
            yield found.encode("ascii")


def _indented(text: str) -> Iterator[list[str]]:
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("    "):
            block.append(line)
        elif block:
            yield block
            block = []


def command_of(words: list[str]) -> tuple[click.Command, list[str]] | None:
    """The command that `zkcoord …` names, and the words after it; None if there is no such command."""
    found: click.Command = cli
    while isinstance(found, click.Group) and words and re.fullmatch(r"[a-z]+(-[a-z]+)*", words[0]):
        below = found.commands.get(words[0])
        if below is None:
            return None
        found, words = below, words[1:]
    return found, words


def unknown_options(line: str) -> list[str]:
    """The options in a command line that its command does not have."""
    found = command_of(line.split()[1:])
    assert found, f"there is no command: {line}"
    command, words = found
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    return [option for option in re.findall(r"--[a-z][a-z-]*", " ".join(words)) if option not in known]


@pytest.mark.parametrize(("name", "lines_max"), [("README.md", 190), ("CHANGELOG.md", 55)])
def test_pages_for_a_first_look_stay_short(name: str, lines_max: int) -> None:
    assert (ROOT / name).read_text(encoding="utf-8").count("\n") <= lines_max


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, fragment = target.partition("#")
        if path.startswith(("https:", "http:")):
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (fragment and fragment not in anchors(there)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = [span.split()[0] for span in spans(page.read_text(encoding="utf-8")) if span.startswith(FOLDERS)]
    assert [name for name in named if "NNNN" not in name and name != MARKER and not (ROOT / name).exists()] == []


def test_python_examples_compile() -> None:
    blocks = {page.name: re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL) for page in PAGES}
    assert {name: len(found) for name, found in blocks.items() if found} == {
        "README.md": 2,
        "consumers.md": 9,
        "testing.md": 2,
    }
    for name, found in blocks.items():
        for block in found:
            compile(block, name, "exec")


def lines_of_commands() -> list[str]:
    """The lines that show a command on the page of commands, each with its continuation."""
    text = re.sub(r"\n {10,}", " ", COMMANDS)
    return [line.strip() for line in text.splitlines() if line.startswith("    zkcoord ")]


def test_the_command_line_is_as_its_page_shows_it() -> None:
    lines = lines_of_commands()
    assert len(lines) > 8
    assert {line: wrong for line in lines if (wrong := unknown_options(line))} == {}


def test_every_command_has_a_line_on_its_page_with_all_of_its_own_options() -> None:
    missing: dict[str, set[str]] = {}
    for words, command in commands_of(cli):
        *noun, verb = words.split()
        call = re.compile(" ".join(["zkcoord", *noun, rf"(?:[a-z-]+ \| )*{verb}(?![a-z-])"]))
        shown = " ".join(line for line in lines_of_commands() if call.match(line))
        own = [each for each in command.params if isinstance(each, click.Option) and each.name not in COMMON]
        named = {verb, *re.findall(r"--[a-z-]+", shown)} if shown else set()
        missing[words] = {verb, *(name for each in own for name in each.opts if name.startswith("--"))} - named
    assert {words: names for words, names in missing.items() if names} == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_the_text_have_their_options(page: Path) -> None:
    named = [span for span in spans(page.read_text(encoding="utf-8")) if span.startswith("zkcoord ")]
    known = [span for span in named if command_of(span.split()[1:])]
    assert {span: wrong for span in known if (wrong := unknown_options(span))} == {}


def test_every_option_of_every_command_is_named_on_its_page() -> None:
    commands = [cli, *cli.commands.values()]
    commands += [c for group in commands[1:] if isinstance(group, click.Group) for c in group.commands.values()]
    options = {name for c in commands for p in c.params if isinstance(p, click.Option) for name in p.opts}
    missing = {name for name in options if name.startswith("--") and name not in COMMANDS}
    assert missing == {"--verbose", "--version"}


def test_every_benchmark_is_run_by_the_script_and_told_on_the_page_of_figures() -> None:
    script = (ROOT / "scripts/bench").read_text(encoding="utf-8")
    (names,) = re.findall(r"^for name in (.*); do$", script, re.MULTILINE)
    programs = [path.stem for path in (ROOT / "benchmarks").glob("*.py") if '"__main__"' in path.read_text("utf-8")]
    told = re.findall(r"^\| `benchmarks/(\w+)\.py` \|", PERFORMANCE, re.MULTILINE)
    assert sorted([*names.split(), "against"]) == sorted(programs) == sorted(told)  # against: for another checkout


@pytest.mark.parametrize("title", CODECS)
def test_formats_in_the_protocol_are_what_the_codecs_write(title: str) -> None:
    found = list(examples(section(PROTOCOL, title)))
    assert found
    assert [CODECS[title](data) for data in found] == found


def test_every_key_of_a_groups_record_and_state_is_explained_in_the_protocol() -> None:
    rows = [line for line in section(PROTOCOL, "Group record and group state").splitlines() if line.startswith("| `")]
    explained = {name for row in rows for name in spans(row.split(" | ")[0])} | {
        "version",
        "generation",
    }  # sections 1, 3
    policy = {f"policy.{key}" for key in POLICY_KEYS}
    assert ({*KEYS} - {"policy"} | policy | {each.name for each in fields(GroupState)}) - explained == set()


def test_the_keys_that_commands_print_for_programs_are_explained() -> None:
    explained = set(spans(section(OPERATIONS, "Output for programs")))
    printed: dict[str, set[str]] = {}
    documents = [
        ROOT / f"zkcoord/operating/{name}.py" for name in ("coordinators", "documents", "members", "partitions")
    ]
    for path in sorted([*(ROOT / "zkcoord/cli").rglob("*.py"), *documents]):
        text = path.read_text(encoding="utf-8")
        if path in documents or re.search(r"\b(print_json|json_line|show|tell)\(", text):
            name = str(path.relative_to(ROOT / "zkcoord").with_suffix(""))
            printed[name] = set(re.findall(r'[{(\s]"([a-z_0-9]+)": ', text))
    assert {"cli/coordinator", "cli/consume", "cli/group/requests", "cli/migrate/schema"} <= printed.keys()
    handed_on = {"assignors", "offsets"}  # for a consumer; for a request
    assert {name: keys - explained for name, keys in printed.items() if not keys <= explained | handed_on} == {}


def test_events_of_the_product_are_explained() -> None:
    explained = {name for line in section(OPERATIONS, "The log").splitlines() for name in spans(line.split(" | ")[0])}
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("member", "serving", "shell", "spark", "kafka", "operating", "cli", "page", "tracing")
        for path in sorted((ROOT / "zkcoord" / folder).rglob("*.py"))
    )
    told = re.findall(
        r'(?:\bevent|_events|\bemit|_tell\(logging\.[A-Z]+,|log_event\(\s*logging\.[A-Z]+,)\(?\s*"([a-z_]+)"', code
    )
    reporting = (ROOT / "zkcoord" / "serving" / "reporting.py").read_text(encoding="utf-8")
    noted = re.findall(r'"([a-z]+_[a-z_]+|evicted)"', reporting)  # the coordinator names its decisions there
    of_states = {event.value for event in StateEvent}
    assert sorted({*told, *noted, *of_states} - explained) == []


def failure_tests() -> dict[str, set[str]]:
    """Number of a failure case -> the tests that have it in their names, as `file::name` below tests/."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name, numbers in re.findall(
            r"^def (test_((?:f\d{2,3}_)+)\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE
        ):
            for number in re.findall(r"f(\d{2,3})_", numbers):
                found.setdefault(f"F{int(number)}", set()).add(f"{path.relative_to(ROOT / 'tests')}::{name}")
    return found


def test_the_failure_cases_are_numbered_and_each_names_its_tests() -> None:
    text = (ROOT / "docs/failures.md").read_text(encoding="utf-8")
    rows = {row[0]: row for row in (line.strip("| ").split(" | ") for line in text.splitlines()) if row[0][:1] == "F"}
    assert list(rows) == sorted(rows, key=lambda name: int(name[1:]))
    assert {f"F{number}" for number in range(1, 55)} <= rows.keys()
    named = {number: set(spans(row[3])) for number, row in rows.items()}
    assert {n: tests - named[n] for n, tests in failure_tests().items() if tests - named[n]} == {}
    files = {test: ROOT / "tests" / test.partition("::")[0] for tests in named.values() for test in tests}
    missing = [
        t for t, f in files.items() if not f.exists() or f"def {t.partition('::')[2]}(" not in f.read_text("utf-8")
    ]
    assert missing == []
    assert [n for n, tests in named.items() if not tests and not rows[n][2].startswith("Comes with")] == []
