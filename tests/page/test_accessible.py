"""No page breaks a rule of axe-core that matters: it looks at each kind of page in Chromium, light and dark, wide and
on a phone."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pytest
from axe_core_python.selenium import Axe
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.integration.world import World
from tests.page.test_browser import TOKEN, Browser, browser, colours, join, page, phone
from tests.waiting import wait_until
from zkcoord.tree.paths import DRAFT

__all__ = ["browser", "page"]  # fixtures
pytestmark = [pytest.mark.zookeeper, pytest.mark.browser]
MATTERS = ("serious", "critical")
HEADINGS = {
    "": "Groups",
    "groups/etl": "Group etl",
    "groups/broken": "Group broken",
    "groups/absent": "Nothing to show",
    "groups/etl/pause": "Pause group etl",
    "groups/etl/hold": "Hold group etl",
    "groups/etl/rebalance": "Rebalance group etl",
    "coordinators": "Coordinators",
    "commands": "Commands outstanding",
    "problems": "Problems",
}
"""Each kind of page, and its heading."""
Screen = Callable[[Browser], AbstractContextManager[None]]


def said(browser: Browser, selector: str) -> str:
    """The text of an element, in one call: an update may put another one in its place."""
    return str(browser.execute_script("return document.querySelector(arguments[0]).innerText", selector))


def violations(browser: Browser) -> list[str]:
    """What axe-core finds in what the browser shows: the rule, and the elements that break it."""
    found = Axe().run(browser, options={"resultTypes": ["violations"]})["violations"]
    return [
        f"{each['id']} ({each['impact']}): {[node['target'] for node in each['nodes']]}"
        for each in found
        if each["impact"] in MATTERS
    ]


def wide(browser: Browser) -> AbstractContextManager[None]:
    """The window as it is."""
    return nullcontext()


@pytest.mark.parametrize("screen", [wide, phone], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_breaks_a_serious_rule(browser: Browser, page: tuple[str, World], scheme: str, screen: Screen) -> None:
    address, world = page
    join(world, "etl", 8)
    join(world, "etl", 4)
    world.put(f"{DRAFT.ids('broken')}/one", b"?")
    headings, found = {}, {}
    with colours(browser, scheme), screen(browser):
        wait_until(
            lambda: browser.get(address) or {"broken", "etl"} <= {*said(browser, "main").split()}, "both are shown", 30
        )
        for path in HEADINGS:
            browser.get(f"{address}/{path}")
            headings[path] = said(browser, "h1")
            found[path] = violations(browser)
    assert headings == HEADINGS
    assert found == {path: [] for path in HEADINGS}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_after_an_action_break_no_rule(browser: Browser, page: tuple[str, World], scheme: str) -> None:
    address, world = page
    join(world, "etl", 8)
    found = {}
    with colours(browser, scheme):
        for token in ("wrong", TOKEN):
            browser.get(f"{address}/groups/etl/hold")
            browser.find_element(By.ID, "token").send_keys(token, Keys.ENTER)
            wait_until(lambda: not browser.find_elements(By.ID, "token"), "it is answered")
            found[said(browser, "h1")] = violations(browser)
    assert found == {"Nothing was done": [], "Hold group etl": []}


@pytest.mark.parametrize(
    ("harm", "rule"),
    [
        ("document.querySelector('nav a').style.color = '#ddd'", "color-contrast"),
        ("document.documentElement.removeAttribute('lang')", "html-has-lang"),
        ("document.querySelector('header').insertAdjacentHTML('beforeend', '<input>')", "label"),
    ],
)
def test_it_is_seen_when_a_page_breaks_one(browser: Browser, page: tuple[str, World], harm: str, rule: str) -> None:
    browser.get(page[0])
    assert violations(browser) == []
    browser.execute_script(harm)
    assert [each.partition(" ")[0] for each in violations(browser)] == [rule]
