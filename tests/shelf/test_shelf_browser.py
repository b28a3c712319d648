"""The pages in a real browser: search, diff, copy, narrow screens, keyboard, contrast, without JavaScript."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from envbuild.shelf.site.write import write_site
from tests.browser import open_browser
from tests.shelf.leaves import many
from tests.support import needs

pytestmark = [pytest.mark.live, needs("chromium", "chromedriver")]

CONTRAST = """
const parse = (text) => text.match(/[\\d.]+/g).map(Number);
const light = (c) => {
  const [r, g, b] = c.map((v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const c = parse(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return c.slice(0, 3);
  }
  return [255, 255, 255];
};
const poor = [];
for (const e of document.querySelectorAll("body *:not(svg *):not(script):not(style)")) {
  if (!Array.from(e.childNodes).some((n) => n.nodeType === 3 && n.textContent.trim())) continue;
  const style = getComputedStyle(e);
  const a = light(parse(style.color).slice(0, 3)), b = light(behind(e));
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) poor.push(e.tagName + " " + e.className + " " + ratio.toFixed(2));
}
return [poor, document.querySelectorAll("body *").length];
"""
"""Contrast of every text as WCAG 2.2 computes it (success criterion 1.4.3: 4.5)."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    write_site(folder, "lab", many(1000))
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with open_browser(tmp_path_factory.mktemp("profile")) as driver:
        yield driver


def logged(browser: Chrome) -> list[dict[str, Any]]:
    """What the browser complained about since the last call."""
    found: list[dict[str, Any]] = browser.execute("getLog", {"type": "browser"})["value"]
    return found


def shown(browser: Chrome) -> int:
    return int(
        browser.execute_script(
            "return document.querySelectorAll('.cards > li:not([hidden])').length"
        )
    )


def opened(browser: Chrome, site: Path, page: str) -> None:
    browser.get((site / page).as_uri())


def typed(browser: Chrome, text: str) -> None:
    box = browser.find_element(By.ID, "words")
    box.send_keys(Keys.ESCAPE)
    box.send_keys(text)
    browser.execute_async_script(
        "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
    )


def test_search_narrows_a_thousand_cards(browser: Chrome, site: Path) -> None:
    opened(browser, site, "index.html")
    assert shown(browser) == 1000
    typed(browser, "JAX 0.4")
    assert shown(browser) == 333
    typed(browser, "recipe-0007")
    assert shown(browser) == 1
    assert browser.find_element(By.ID, "count").text == "1 of 1000"
    typed(browser, "no such thing")
    assert shown(browser) == 0
    browser.refresh()
    assert shown(browser) == 0, "the words stand in the address"


def test_a_search_through_a_thousand_entries_ends(browser: Chrome, site: Path) -> None:
    opened(browser, site, "index.html")
    left = browser.execute_script(
        "const box = document.getElementById('words'); box.value = 'torch';"
        "for (const c of document.querySelectorAll('[data-words]')) c.hidden = !c.dataset.words.includes('torch');"
        "return document.querySelectorAll('[data-words]:not([hidden])').length"
    )
    assert 0 < left < 1000


def test_the_keyboard_is_enough(browser: Chrome, site: Path) -> None:
    opened(browser, site, "index.html")
    browser.find_element(By.TAG_NAME, "body").send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "words"
    browser.switch_to.active_element.send_keys("keras-bert", Keys.TAB)
    link = browser.switch_to.active_element
    assert link.text == "keras-bert"
    outline = browser.execute_script("return getComputedStyle(arguments[0]).outlineStyle", link)
    assert outline == "solid"
    link.send_keys(Keys.ENTER)
    assert browser.title == "keras-bert: lab"
    focused = browser.execute_script(
        "return [...document.querySelectorAll('pre')].every((e) => e.scrollWidth <= e.clientWidth || e.tabIndex === 0)"
    )
    assert focused


def test_a_command_is_copied(browser: Chrome, site: Path) -> None:
    opened(browser, site, "recipes/keras-bert.html")
    granted: dict[str, Any] = {"permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
    browser.execute_cdp_cmd("Browser.grantPermissions", granted)
    button = browser.find_element(By.CSS_SELECTOR, "button[aria-label='Copy: Make the image here']")
    button.click()
    text = browser.execute_async_script(
        "const done = arguments[0]; setTimeout(() => navigator.clipboard.readText().then(done, (e) => done(String(e))), 300)"
    )
    assert text == "envbuild make lab/keras-bert"
    assert button.text == "Copied"


def test_the_changes_are_shown(browser: Chrome, site: Path) -> None:
    opened(browser, site, "recipes/keras-bert.html")
    changes = browser.find_element(By.XPATH, "//details[summary[contains(., 'changes')]]/pre")
    assert changes.text.splitlines() == [
        "~ keras-bert 0.88.0 -> 0.89.0",
        "+ pydot 2.0.0",
        "- graphviz 0.19",
    ]


@pytest.mark.parametrize("page", ["index.html", "recipes/keras-bert.html", "recipes/broken.html"])
@pytest.mark.parametrize("width", [360, 1200])
def test_nothing_is_wider_than_the_screen(
    browser: Chrome, site: Path, page: str, width: int
) -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    opened(browser, site, page)
    assert browser.execute_script("return document.scrollingElement.scrollWidth") <= width
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("page", ["index.html", "recipes/keras-bert.html", "recipes/broken.html"])
def test_every_text_has_contrast(browser: Chrome, site: Path, page: str, scheme: str) -> None:
    feature = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", feature)
    opened(browser, site, page)
    dark = (
        browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        == "rgb(13, 17, 23)"
    )
    assert dark == (scheme == "dark")
    poor, seen = browser.execute_script(CONTRAST)
    assert seen > 5
    assert poor == []


def test_the_policy_lets_everything_of_the_page_run(browser: Chrome, site: Path) -> None:
    logged(browser)
    opened(browser, site, "recipes/keras-bert.html")
    assert logged(browser) == []
    requests = browser.execute_script("return performance.getEntriesByType('resource').length")
    assert requests == 0


def test_it_reads_without_javascript(site: Path, tmp_path: Path) -> None:
    with open_browser(tmp_path, scripts=False) as driver:
        opened(driver, site, "index.html")
        assert "keras-bert" in driver.find_element(By.CSS_SELECTOR, ".cards").text
        assert "use your browser's own search" in driver.find_element(By.TAG_NAME, "header").text
        assert not driver.find_element(By.ID, "words").is_displayed()
        opened(driver, site, "recipes/keras-bert.html")
        assert "envbuild make lab/keras-bert" in driver.find_element(By.TAG_NAME, "main").text
        assert not driver.find_elements(By.TAG_NAME, "button")
