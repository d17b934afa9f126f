"""What each view shows of a real tree, to a client without JavaScript."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from tests.cli.group_tree import P0, P1, A, B, World
from tests.page.conftest import ADDRESS, Open
from tests.waiting import wait_until
from zkcoord.core.command import Command, Option
from zkcoord.core.model import TopicPartition
from zkcoord.core.record import DEFAULT_RECORD, Request
from zkcoord.core.state import GroupState
from zkcoord.core.view import Instance
from zkcoord.offsets.verdict import Log
from zkcoord.page import show
from zkcoord.page.guard import HEADERS
from zkcoord.page.reading import HandOvers
from zkcoord.tree.command import encode_command
from zkcoord.tree.instance import encode_instance
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import encode_record
from zkcoord.tree.request import requested
from zkcoord.tree.state import digest, encode_state
from zkcoord.tree.status import Status, encode_status

pytestmark = pytest.mark.zookeeper
HOLD_MS = 3_600_000
EVIL = '<img src=x onerror="alert(1)">&amp;\'\u202e'


class Text(HTMLParser):
    """The text of a page, its elements with their attributes, and those that were not closed."""

    VOID = frozenset({"meta", "link", "input", "img", "br"})

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.text, self.elements, self.open = "", list[tuple[str, dict[str, str | None]]](), list[str]()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


def get(client: TestClient, path: str, status: int = 200) -> Text:
    """The page at this path: every element is closed, and every answer has the headers."""
    answer = client.get(path)
    assert answer.status_code == status, answer.text
    assert {name: answer.headers[name] for name in HEADERS} == dict(HEADERS)
    assert "set-cookie" not in answer.headers
    page = Text(answer.text)
    assert page.open == []
    return page


def rows(client: TestClient, path: str) -> list[str]:
    """The rows of all tables, one line each."""
    text = client.get(path).text
    found = re.findall(r"<tr>(.*?)</tr>", text, re.DOTALL)
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", row)).strip() for row in found]


def test_a_settled_group_in_the_list_and_by_itself(world: World, open_page: Open) -> None:
    world.settle()
    page = open_page()

    assert rows(page, "/")[1:] == ["g Stable - 1 2 0 7 - 0"]
    assert "no coordinator is elected" in get(page, "/").text
    shown = get(page, "/groups/g")
    said = "Group g: Stable, generation 7, coordinator NONE ELECTED, epoch 0, 0 commands outstanding, 1 member"
    assert said in shown.text
    found = rows(page, "/groups/g")
    assert f"{A} etl-1 2 0 - clicks (1) -" in found
    assert f"clicks 0 100 - - {A}-0" in found
    assert f"clicks 1 - - - {A}-0" in found
    assert "the page was told of no coordinator that keeps it" in shown.text


def test_members_have_the_lag_of_what_they_own_and_those_that_are_away_stand_there_too(
    world: World, open_page: Open
) -> None:
    world.settle()
    away = Instance(last_id=B, hold_ms=HOLD_MS, threads={"clicks": 1}, share={P1: 0}, assignor="sticky", away=True)
    world.put(DRAFT.instance("g", "etl-2"), encode_instance(away))
    world.put(DRAFT.owner("g", P1), f"{B}-0".encode())
    world.put(DRAFT.state("g"), encode_state(GroupState(target=digest({P0: f"{A}-0", P1: "@etl-2-0"}))))
    world.put(DRAFT.channel("g", A), encode_status(Status(lag=7)))
    page = open_page()

    found = rows(page, "/groups/g")
    assert f"{A} etl-1 1 0 7 clicks (1) -" in found, "as it told it"
    assert any(row.startswith(f"{B} (gone) etl-2 1 0 - clicks (1) away: 1 partition without a reader") for row in found)
    look = cast("Any", page).reader.look("g")
    seen = replace(look.seen, logs={P0: Log(start=0, end=150)})
    members = show.group(replace(look, seen=seen), (), (), "topic", 1)["members"]
    assert [(each["consumer"], each["lag"]) for each in members] == [(A, 50), (B, None)], "as Kafka tells it"


def test_a_groups_lag_is_drawn_over_the_readings_of_its_page(world: World, open_page: Open) -> None:
    world.settle()
    world.put(DRAFT.channel("g", A), encode_status(Status(lag=100)))
    page = open_page()
    assert "It is not known yet" in get(page, "/groups/g").text
    reader = cast("Any", page).reader

    def tells(lag: int) -> None:
        known = len(reader.lags("g"))
        world.put(DRAFT.channel("g", A), encode_status(Status(lag=lag)))
        reader.read_again()
        wait_until(lambda: len(reader.lags("g")) > known, "it was read again")

    tells(40)
    tells(70)
    shown = get(page, "/groups/g")
    assert re.search(r"Since .*: at least 40, at most 100, now 70\.", shown.text)
    (line,) = shown.of("polyline")
    heights = [float(point.split(",")[1]) for point in str(line["points"]).split()]
    assert heights[0] < heights[2] < heights[1], "more lag stands higher, where y is less"


def test_names_are_shown_as_text_everywhere(world: World, open_page: Open) -> None:
    """A group, a topic, a consumer, an instance, requests and bytes that nobody can read: all are a stranger's."""
    world.settle()
    consumer = f"g_{EVIL}"
    group = EVIL.rstrip("\u202e")
    world.put(DRAFT.record("g"), encode_record(requested(DEFAULT_RECORD, "hold", Request(who=EVIL, run=EVIL))))
    world.member(consumer, instance=EVIL, subscription={"clicks": 1})
    world.put(DRAFT.owner("g", P1), f"{consumer}-0".encode())
    world.put(f"/brokers/topics/{EVIL}", EVIL.encode())
    world.put(DRAFT.group(group))
    world.put(f"{DRAFT.ids(group)}/{EVIL}", EVIL.encode())
    world.put(f"{DRAFT.offsets('g')}/{EVIL}/0", EVIL.encode())
    page = open_page()
    name = next(href for href in (a["href"] for a in get(page, "/").of("a")) if href and "%3C" in href)

    for path in ("/", "/groups/g", name, "/coordinators", "/commands", "/problems", f"/groups/{EVIL}x"):
        shown = get(page, path, 404 if path.endswith("x") else 200)
        assert shown.of("img") == []
        assert [script["src"] for script in shown.of("script")] == ["/static/live.js"]
        assert not any(name.startswith("on") or name == "style" for _, more in shown.elements for name in more)
        assert "\u202e" not in shown.text
    assert EVIL[:-1] in get(page, "/groups/g").text


def test_commands_and_problems_stand_on_their_pages(world: World, open_page: Open) -> None:
    world.settle()
    world.start_for_a()
    page = open_page(interval_ms=10)

    wait_until(lambda: rows(page, "/commands")[1:], "the command is listed")
    row = rows(page, "/commands")[1]
    assert row.startswith(f"g {A} start-fetcher clicks-1 7 ")
    wait_until(
        lambda: "no-coordinator" not in get(page, "/").text and "no problem" in get(page, "/").text, "it is calm"
    )
    problems = get(page, "/problems")
    assert "0 problems" in problems.text


def test_a_problem_is_told_with_what_to_do(world: World, open_page: Open) -> None:
    world.settle()
    world.put(DRAFT.offset("g", TopicPartition("gone", 0)), b"no number")
    page = open_page()

    assert "no number" in get(page, "/groups/g").text
    assert re.search(r"offsets/gone/0.*operator", get(page, "/groups/g").text)


def test_coordinators_are_listed(world: World, open_page: Open) -> None:
    world.settle()
    world.put(DRAFT.coordinator, b"1")
    world.put(DRAFT.candidate(1), b'{"host":"h-1","pid":7,"version":"0.1.0","since":"2026-11-23T10:00:00+00:00"}')
    page = open_page()

    assert rows(page, "/coordinators")[1] == "1 serving h-1 7 0.1.0 1-1 2026-11-23T10:00:00+00:00"
    assert "coordinator 1 serves" in get(page, "/").text


def test_the_live_address_is_that_of_the_shown_view(world: World, open_page: Open) -> None:
    world.settle()
    page = open_page()

    def live(path: str, status: int = 200) -> str | None:
        (body,) = get(page, path, status).of("body")
        return body.get("data-live")

    assert live("/") == "/live/"
    assert live("/groups/g?sort=lag&page=2") == "/live/groups/g?sort=lag&page=2"
    assert live("/groups/absent", 404) is None


def test_large_tables_come_in_parts(world: World, open_page: Open) -> None:
    world.settle()
    world.topic("clicks", 450)
    page = open_page()

    assert len([row for row in rows(page, "/groups/g") if row.startswith("clicks ")]) == 200
    last = [row for row in rows(page, "/groups/g?page=3") if row.startswith("clicks ")]
    assert (last[0].split()[1], last[-1].split()[1], len(last)) == ("400", "449", 50)
    assert [row for row in rows(page, "/groups/g?page=99") if row.startswith("clicks ")] == last
    assert next(row for row in rows(page, "/groups/g?page=-1&sort=x") if row.startswith("clicks ")).split()[1] == "0"


def test_many_commands_come_in_parts_too(world: World, open_page: Open) -> None:
    world.settle()
    command = encode_command(Command(option=Option.PING, ownership=None, generation=7, epoch=1))
    for number in range(205):
        world.put(f"{DRAFT.channel('g', A)}/{number:010}", command)
    page = open_page()

    assert len(rows(page, "/commands")) == 1 + 200
    assert len(rows(page, "/commands?page=2")) == 1 + 5
    assert [a["href"] for a in get(page, "/commands?page=2").of("a") if "page=" in str(a["href"])] == ["?page=1"]


def test_missing_groups_and_pages_are_told(world: World, open_page: Open) -> None:
    page = open_page()
    assert "There is no group" in get(page, "/").text
    assert "there is no group 'x'" in get(page, "/groups/x", 404).text
    for path in ("/x", "/groups/a%2Fb", "/groups/..%2f..", "/static/../app.py", "/static/none", "/groups/g/explode"):
        assert get(page, path, 404)
    assert page.post("/").status_code == 405


def test_a_page_without_a_tree_says_so_and_shows_it_as_soon_as_there_is_one(chroot: str, open_page: Open) -> None:
    page = open_page(interval_ms=10)
    assert "no zkcoord tree" in get(page, "/", 503).text
    from zkcoord.shell.zk.blocking import Tree

    with Tree(chroot) as tree:
        World(tree, chroot)
        wait_until(lambda: page.get("/").status_code == 200, "the tree is read")


def test_f177_a_name_that_was_made_to_lead_here_gets_no_answer(world: World, open_page: Open) -> None:
    page = open_page(names=frozenset({"groups.example"}))
    world.settle()
    for host, status in (("evil.example", 421), ("groups.example", 200), ("127.0.0.1:8080", 200), ("", 421)):
        for path in ("/", "/groups/g", "/static/live.js", "/live/"):
            if status == 200 and path == "/live/":
                continue  # it never ends
            answer = page.get(path, headers={"host": host})
            assert answer.status_code == status
            assert answer.headers["content-security-policy"] == HEADERS["content-security-policy"]
            assert "Stable" not in answer.text or status == 200


def test_pages_are_made_for_keyboards_and_screen_readers(world: World, open_page: Open) -> None:
    world.settle()
    page = open_page()
    for path in ("/", "/groups/g", "/coordinators", "/commands", "/problems"):
        shown = get(page, path)
        assert [html["lang"] for html in shown.of("html")] == ["en"]
        assert len(shown.of("h1")) == len(shown.of("main")) == 1
        current = [link["href"] for link in shown.of("a") if link.get("aria-current") == "page"]
        assert current == ([] if path == "/groups/g" else [path])
        ids = [more["id"] for _, more in shown.elements if "id" in more]
        assert len(ids) == len(set(ids))
        assert [th for th in shown.of("th") if "scope" not in th] == []
        wide = [more for _, more in shown.elements if "scroll" in (more.get("class") or "").split()]
        assert [
            each for each in wide if each.get("tabindex") != "0" or not {"aria-label", "aria-labelledby"} & each.keys()
        ] == []
        labels = [each for _, more in shown.elements if (each := more.get("aria-labelledby"))]
        assert [each for each in labels if each not in ids] == []
        assert ADDRESS not in str(shown.elements)


def test_a_command_is_as_old_as_the_page_knows_it(world: World, open_page: Open) -> None:
    world.settle()
    world.start_for_a()
    reader = cast("Any", open_page()).reader
    first = reader.reading
    reader.read_again()
    wait_until(lambda: reader.reading is not first, "it was read again")

    assert len(first.commands) == 1
    assert reader.reading.commands == first.commands


def test_of_many_hand_overs_the_newest_stand_in_the_table_the_last_one_first() -> None:
    times = {"decided_ms": None, "released_ms": None, "granted_ms": 1}
    found = [
        {"topic": "clicks", "partition": n, "from": None, "to": f"{A}-0", **times, "acknowledged_ms": 2 + n}
        for n in range(show.SHOWN_MAX + 10)
    ]

    shown = show.timeline("g", HandOvers(found, None, 0))

    assert shown["number"] == show.SHOWN_MAX + 10
    assert [row["PARTITION"] for row in shown["rows"]] == [f"clicks-{n}" for n in range(show.SHOWN_MAX + 9, 9, -1)]
