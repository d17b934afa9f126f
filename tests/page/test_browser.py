"""The page in a real browser. `ZKCOORD_PICTURES=docs/images` writes the pictures of docs/page.md."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from tests.integration.world import Member, World
from tests.metrics.test_endpoint import free_address
from tests.page.test_pictures import fingerprint
from tests.waiting import wait_until
from zkcoord import Coordinator
from zkcoord.page.reading import Reader
from zkcoord.page.serve import Served, app_of, listen
from zkcoord.shell.zk.blocking import Tree
from zkcoord.tree.paths import DRAFT

pytestmark = [pytest.mark.zookeeper, pytest.mark.browser]
TOKEN = "a-token-of-this-test"
PICTURES = os.environ.get("ZKCOORD_PICTURES")

Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium without a window."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for word in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1000,760"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture
def page(chroot: str, browser: Browser) -> Iterator[tuple[str, World]]:
    """The address of a page of a coordinator with timelines, and its world: topic clicks with eight partitions."""
    import uvicorn

    metrics = free_address()
    coordinator = Coordinator(chroot, metrics=metrics)
    coordinator.start()
    served = Served(address=chroot, open_tree=lambda: Tree(chroot), kafka=None, timelines=(metrics,), token=TOKEN)
    reader = Reader(served.open_tree, chroot, timelines=served.timelines, interval_ms=200)
    config = uvicorn.Config(app_of(served, reader), log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    with World(chroot) as world, listen(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        reader.start()
        thread.start()
        world.topic("clicks", 8)
        try:
            wait_until(lambda: reader.reading is not None, "it has read all groups")
            yield f"http://127.0.0.1:{listening.getsockname()[1]}", world
        finally:
            browser.get("about:blank")  # before the server is gone, which an open page would complain of
            browser.get_log("browser")
            server.should_exit = True
            thread.join()
            reader.stop()
            coordinator.stop()


def join(world: World, group: str, share: int) -> Member:
    member = world.join(group, "clicks")
    wait_until(lambda: len(member.held()) == share, "it has its share")
    return member


def text(browser: Browser) -> str:
    return browser.find_element(By.TAG_NAME, "main").text


def complaints(browser: Browser) -> list[str]:
    """What the browser has complained of: scripts and styles that its policy forbids, errors of the script."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def picture(browser: Browser, name: str) -> None:
    """Keep what the browser shows."""
    shown = browser.get_screenshot_as_png()
    assert shown.startswith(b"\x89PNG")
    if PICTURES:
        (Path(PICTURES) / f"{name}.png").write_bytes(shown)
        (Path(PICTURES) / "page.sha256").write_text(f"{fingerprint()}\n", "utf-8")


@contextmanager
def colours(browser: Browser, scheme: str) -> Iterator[None]:
    """A user who prefers this colour scheme."""
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    yield
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def phone(browser: Browser) -> Iterator[None]:
    """The screen of a small phone."""
    screen = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@contextmanager
def without_scripts(browser: Browser) -> Iterator[None]:
    """A browser that runs none."""
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    yield
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def test_a_hand_over_appears_in_the_open_page(browser: Browser, page: tuple[str, World]) -> None:
    address, world = page
    browser.get(address)
    assert "There is no group" in text(browser)
    first = join(world, "etl", 8)
    wait_until(lambda: "etl" in text(browser) and "Stable" in text(browser), "the group appears by itself")
    join(world, "reports", 8)
    wait_until(lambda: "reports" in text(browser), "and another one")
    picture(browser, "page-groups")

    browser.find_element(By.LINK_TEXT, "etl").click()
    wait_until(lambda: text(browser).count(f"{first.consumer.consumer_id}-0") >= 8, "it is shown who reads")
    second = join(world, "etl", 4)
    wait_until(lambda: text(browser).count(f"{second.consumer.consumer_id}-0") == 4, "the hand-over is shown")
    wait_until(lambda: "The last 12 of 12" in text(browser), "and its timeline")
    assert browser.find_elements(By.CSS_SELECTOR, ".picture svg rect")
    browser.execute_script("document.getElementById('timeline').scrollIntoView()")
    picture(browser, "page-timeline")
    assert complaints(browser) == []


def test_a_group_is_paused_by_keyboard_alone(browser: Browser, page: tuple[str, World]) -> None:
    address, world = page
    member = join(world, "etl", 8)
    browser.get(f"{address}/groups/etl")
    keys = webdriver.ActionChains(browser)
    keys.send_keys(Keys.TAB).perform()
    assert browser.switch_to.active_element.text == "Skip to the content"
    keys.send_keys(Keys.ENTER).perform()
    for _ in range(2):
        webdriver.ActionChains(browser).send_keys(Keys.TAB).perform()
    assert browser.switch_to.active_element.text == "Pause …"
    webdriver.ActionChains(browser).send_keys(Keys.ENTER).perform()
    wait_until(lambda: "Who is stopped" in text(browser), "the plan is shown")
    picture(browser, "page-plan")
    field = browser.find_element(By.ID, "token")
    field.send_keys(TOKEN, Keys.ENTER)
    wait_until(lambda: "The coordinator says: paused." in text(browser), "it is paused")
    wait_until(lambda: member.held() == [], "the member tells that it has stopped")  # a moment later
    assert complaints(browser) == []


CONTROLS = """
    return [...document.querySelectorAll("a[href], button, input, select, [tabindex]")]
      .filter((each) => each.tabIndex >= 0 && each.getClientRects().length)
      .map((each, n) => { each.dataset.n = n; return each.outerHTML.slice(0, 99); });
"""
FOCUSED = """
    const each = document.activeElement, style = getComputedStyle(each), box = each.getBoundingClientRect();
    return { n: each.dataset.n, outline: style.outlineStyle === "solid" && parseFloat(style.outlineWidth) >= 2,
             seen: box.right > 0 && box.bottom > 0 && box.left < innerWidth && box.top < innerHeight };
"""


@pytest.mark.parametrize("path", ["", "groups/etl", "groups/etl/pause", "groups/etl/reset"])
def test_tab_visits_each_control_in_the_order_of_the_page_and_shows_where_it_is(
    browser: Browser, page: tuple[str, World], path: str
) -> None:
    address, world = page
    join(world, "etl", 8)
    join(world, "etl", 4)
    wait_until(lambda: browser.get(address) or "etl" in text(browser), "the group is shown")
    browser.get(f"{address}/{path}")
    browser.execute_script(
        "document.getElementById('live-switch').click()"
    )  # an update would put others in their place
    controls = browser.execute_script(CONTROLS)
    assert len(controls) > 5

    visited = []
    for _ in controls:
        webdriver.ActionChains(browser).send_keys(Keys.TAB).perform()
        visited.append(browser.execute_script(FOCUSED))

    assert visited == [{"n": str(n), "outline": True, "seen": True} for n in range(len(controls))], controls


def test_updates_keep_the_focus_and_can_be_paused(browser: Browser, page: tuple[str, World]) -> None:
    address, world = page
    join(world, "etl", 8)
    browser.get(address)
    wait_until(lambda: "etl" in text(browser), "the group is shown")
    switch = browser.find_element(By.ID, "live-switch")
    wait_until(lambda: browser.find_element(By.ID, "live-state").text == "Live.", "it is live")
    browser.execute_script("document.querySelector('main a[href=\"/groups/etl\"]').focus()")
    join(world, "reports", 8)
    wait_until(lambda: "reports" in text(browser), "an update came")
    assert browser.switch_to.active_element.text == "etl"
    switch.click()
    assert browser.find_element(By.ID, "live-state").text == "Updates are paused."
    read = browser.find_element(By.ID, "read").text
    assert switch.text == "Go on with updates"
    assert browser.find_element(By.ID, "read").text == read
    switch.click()
    wait_until(lambda: browser.find_element(By.ID, "read").text != read, "updates come again")
    assert complaints(browser) == []


def test_all_pages_fit_a_phone_and_both_colour_schemes(browser: Browser, page: tuple[str, World]) -> None:
    address, world = page
    join(world, "a-group-with-a-name-that-is-longer-than-any-screen-of-a-phone-could-ever-show-in-a-single-line", 8)
    join(world, "etl", 8)
    browser.get(address)
    wait_until(lambda: "2 groups, 16 partitions" in text(browser), "the page shows both groups")
    found = {}
    for scheme in ("light", "dark"):
        with colours(browser, scheme), phone(browser):
            for path in ("", "groups/etl", "coordinators", "commands", "problems", "groups/etl/pause"):
                browser.get(f"{address}/{path}")
                wide = browser.execute_script("return document.documentElement.scrollWidth - window.innerWidth")
                assert wide <= 0, path
            browser.get(address)
            found[scheme] = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            if scheme == "dark":
                picture(browser, "page-phone-dark")
    assert found == {"light": "rgb(255, 255, 255)", "dark": "rgb(13, 17, 23)"}


def test_without_javascript_all_can_be_read(browser: Browser, page: tuple[str, World]) -> None:
    address, world = page
    member = join(world, "etl", 8)
    with without_scripts(browser):
        wait_until(lambda: browser.get(address) or "etl" in text(browser), "the group is shown when it is loaded again")
        browser.find_element(By.LINK_TEXT, "etl").click()
        wait_until(lambda: text(browser).count(f"{member.consumer.consumer_id}-0") >= 8, "it is shown who reads")
        assert not browser.find_element(By.ID, "live-switch").is_displayed()


def test_hostile_names_run_nothing(browser: Browser, page: tuple[str, World]) -> None:
    address, world = page
    evil = "<img src=x onerror=document.title='taken'><script>document.title='taken'<\\script>"
    world.put(f"{DRAFT.ids(evil)}/{evil}", evil.encode())
    browser.get(address)
    wait_until(lambda: evil in text(browser), "the name is shown as text")
    browser.find_element(By.PARTIAL_LINK_TEXT, "onerror").click()
    wait_until(lambda: "Assignment" in text(browser), "the group is shown")
    assert text(browser).count(evil) > 2
    assert browser.title.startswith("Group <img")
    assert browser.find_elements(By.CSS_SELECTOR, "img, main script") == []
    assert complaints(browser) == []
