"""The page below a path of a proxy: every link stays below it, and requests come with the prefix or without."""

from __future__ import annotations

import re

import pytest

from tests.cli.group_tree import World
from tests.page.conftest import TOKEN, Open
from zkcoord.errors import UsageError
from zkcoord.page.guard import check_prefix

VIEWS = ("/", "/groups/g", "/coordinators", "/commands", "/problems", "/groups/g/hold", "/nothing-here")
LINK = re.compile(r'(?:href|src|action|data-live)="([^"?#][^"]*)"')


@pytest.mark.zookeeper
def test_every_link_stays_below_the_prefix_and_leads_somewhere(world: World, open_page: Open) -> None:
    world.settle()
    client = open_page(prefix="/ops/zkcoord", token=TOKEN)
    found: set[str] = set()
    for view in VIEWS:
        with_prefix, without = client.get(f"/ops/zkcoord{view}"), client.get(view)
        assert with_prefix.status_code == without.status_code == (404 if view == "/nothing-here" else 200), view
        assert LINK.findall(with_prefix.text) == LINK.findall(without.text)
        found.update(LINK.findall(with_prefix.text))
    assert [link for link in found if not link.startswith("/ops/zkcoord/")] == []
    assert {"/ops/zkcoord/live/groups/g", "/ops/zkcoord/live/", "/ops/zkcoord/static/live.js"} <= found
    assert {client.get(link).status_code for link in found if "/live/" not in link} == {200}
    assert client.get("/ops/zkcoord").status_code == 200
    assert client.get("/ops/zkcoordx/groups/g").status_code == 404


@pytest.mark.parametrize("prefix", ["zkcoord", "/a b", "/..", '/"', "//x", "/groups", "/live/x"])
def test_a_prefix_that_is_no_path_or_one_of_the_pages_own_is_refused(prefix: str) -> None:
    with pytest.raises(UsageError, match="--http-path-prefix"):
        check_prefix(prefix)
