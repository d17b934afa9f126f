"""Actions from the page: what is shown first, who may do it, and what becomes of it with a real coordinator."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from starlette.testclient import TestClient

from tests.integration.world import Member, World
from tests.kafka.helpers import PATIENCE_SECONDS, QUIET
from tests.kafka.topics import create_topic
from tests.page.conftest import ADDRESS, Open
from tests.waiting import wait_until
from zkcoord.core.model import TopicPartition
from zkcoord.kafka.client import KafkaClient
from zkcoord.page.guard import WRONG_MAX
from zkcoord.page.plans import ACTIONS
from zkcoord.tree.paths import DRAFT
from zkcoord.tree.record import decode_record

pytestmark = pytest.mark.zookeeper
TOKEN = "a-token-of-this-test"


@pytest.fixture
def world(chroot: str) -> Iterator[World]:
    """A coordinator serves; topic clicks has four partitions."""
    with World(chroot) as world:
        world.coordinate()
        world.topic("clicks", 4)
        yield world


def join(world: World, *, share: int = 4) -> Member:
    """One more member of group g, with its share."""
    member = world.join("g", "clicks")
    wait_until(lambda: len(member.held()) == share, "it has its share")
    return member


def hidden(page: str) -> dict[str, str]:
    """The fields of the form that confirms."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return {name: unescape(value) for name, value in found}


def confirm(page: TestClient, action: str, token: str = TOKEN, headers: Any = None, **fields: str) -> Any:
    """Look at the plan, and confirm it."""
    form = hidden(page.get(f"/groups/g/{action}", params=fields).text)
    return page.post(f"/groups/g/{action}", data={**form, "token": token}, headers=headers)


def requests(world: World) -> set[str]:
    return set(decode_record(world.data(DRAFT.record("g"))).requests)


def test_a_group_is_paused_and_resumed_from_the_page(world: World, open_page: Open) -> None:
    member = join(world)
    page = open_page(token=TOKEN)

    shown = page.get("/groups/g/pause").text
    assert "Who is stopped" in shown
    assert re.search(rf"<td>{member.consumer.consumer_id}</td><td>4</td>", shown)
    assert requests(world) == set()
    done = confirm(page, "pause")
    assert (done.status_code, "The coordinator says: paused." in done.text) == (200, True)
    wait_until(lambda: member.held() == [], "the member has seen its release, too")
    wait_until(lambda: "Paused" in page.get("/").text, "all groups are read again at once")
    assert "paused by" in page.get("/groups/g").text
    assert "by the page, from testclient" in page.get("/groups/g/resume").text
    assert "It is resumed." in confirm(page, "resume").text
    wait_until(lambda: len(member.held()) == 4, "it reads again")


def test_hold_and_rebalance_show_what_would_move(world: World, open_page: Open) -> None:
    join(world)
    page = open_page(token=TOKEN)
    assert "Nothing would move" in page.get("/groups/g/rebalance").text
    assert "The coordinator says: held." in confirm(page, "hold").text
    late = world.join("g", "clicks")
    wait_until(lambda: "What is kept from moving" in (shown := page.get("/groups/g/hold").text) and "<td>" in shown, "")
    assert late.held() == []
    assert "the group is held: resume it first" in confirm(page, "rebalance").text
    assert "It is resumed." in confirm(page, "resume").text
    wait_until(lambda: len(late.held()) == 2, "it has its share")
    assert "The coordinator says: done." in confirm(page, "rebalance").text
    assert requests(world) == set()


def test_f178_without_the_token_nothing_is_done_and_trying_ends_soon(world: World, open_page: Open) -> None:
    member = join(world)
    page = open_page(token=TOKEN)
    answers = [confirm(page, "pause", token) for token in ("", "wrong", TOKEN + "x", TOKEN[:-1], TOKEN.upper())]
    assert [each.status_code for each in answers] == [403] * WRONG_MAX
    assert confirm(page, "pause").status_code == 429
    assert (requests(world), len(member.held())) == (set(), 4)


def test_a_program_sends_the_token_in_a_header(world: World, open_page: Open) -> None:
    join(world)
    page = open_page(token=TOKEN)
    form = hidden(page.get("/groups/g/hold").text)
    assert page.post("/groups/g/hold", data=form, headers={"authorization": f"Bearer {TOKEN}x"}).status_code == 403
    assert page.post("/groups/g/hold", data=form, headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert requests(world) == {"hold"}


def test_f178_another_pages_request_is_refused_even_with_the_token(world: World, open_page: Open) -> None:
    join(world)
    page = open_page(token=TOKEN)
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": ADDRESS},
    ):
        assert confirm(page, "pause", headers=headers).status_code == 403
    assert page.post("/groups/g/pause", content=b"x" * 20_000).status_code == 413
    assert page.get("/groups/g/pause", params={"token": TOKEN}).status_code == 200
    assert requests(world) == set()
    assert confirm(page, "pause", headers={"origin": ADDRESS, "sec-fetch-site": "same-origin"}).status_code == 200


def test_f179_a_plan_that_has_changed_is_shown_again_before_anything_is_done(world: World, open_page: Open) -> None:
    first = join(world)
    page = open_page(token=TOKEN)
    form = hidden(page.get("/groups/g/pause").text)
    second = join(world, share=2)

    answer = page.post("/groups/g/pause", data={**form, "token": TOKEN})
    assert answer.status_code == 409
    assert "The plan is another one by now" in answer.text
    assert re.search(rf"<td>{second.consumer.consumer_id}</td><td>2</td>", answer.text)
    assert requests(world) == set()
    again = page.post("/groups/g/pause", data={**hidden(answer.text), "token": TOKEN})
    assert again.status_code == 200
    wait_until(lambda: first.held() == second.held() == [], "the members have seen their releases, too")


def test_without_a_token_the_page_offers_no_actions(world: World, open_page: Open) -> None:
    join(world)
    page = open_page()
    assert 'aria-label="Actions"' not in page.get("/groups/g").text
    for action in ACTIONS:
        assert page.get(f"/groups/g/{action}").status_code == 403
        assert page.post(f"/groups/g/{action}", data={"token": "", "plan": ""}).status_code == 403
    assert requests(world) == set()


def test_an_impossible_action_says_why(world: World, open_page: Open) -> None:
    join(world)
    page = open_page(token=TOKEN)
    assert page.get("/groups/none/pause").status_code == 404
    assert page.get("/groups/g/explode").status_code == 404
    assert page.post("/groups/g/explode", data={"token": TOKEN}).status_code == 404
    assert "choose to which offsets" in page.get("/groups/g/reset?goal=sideways").text
    assert "no whole number" in page.get("/groups/g/reset?goal=to-offset&value=x").text
    assert "YYYY-MM-DD" in page.get("/groups/g/reset?goal=to-datetime&value=x").text
    assert "--bootstrap-servers" in page.get("/groups/g/reset?goal=to-earliest").text
    refused = page.post("/groups/g/reset", data={"token": TOKEN, "goal": "to-earliest"})
    assert (refused.status_code, "--bootstrap-servers" in refused.text) == (409, True)


@pytest.mark.kafka
def test_offsets_are_reset_from_the_page_while_the_group_is_read(world: World, open_page: Open, kafka: Any) -> None:
    topic = f"t-{uuid.uuid4().hex[:8]}"
    create_topic(AdminClient({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET), topic, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers}, logger=QUIET)
    for _ in range(7):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(PATIENCE_SECONDS) == 0
    world.topic(topic, 1)
    member = world.join("g", topic)
    partition = TopicPartition(topic, 0)
    wait_until(lambda: member.begun == {partition: 0}, "it reads")
    page = open_page(token=TOKEN, kafka=lambda: KafkaClient(kafka.bootstrap_servers))
    assert f"<td>{topic}</td>" in page.get("/groups/g").text
    wait_until(lambda: '<td class="n">7</td><td class="n">7</td>' in page.get("/groups/g").text, "the lag is told")

    asked = {"goal": "to-offset", "value": "5", "topics": topic}
    shown = page.get("/groups/g/reset", params=asked).text
    assert f"<td>{partition}</td><td>0</td><td>5</td>" in shown
    assert world.data(DRAFT.offset("g", partition)) == b"0"
    done = confirm(page, "reset", **asked)
    assert (done.status_code, "1 offset was changed." in done.text) == (200, True)
    wait_until(lambda: member.begun == {partition: 5}, "it goes on there")
    assert requests(world) == set()
