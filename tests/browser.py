"""A real browser without a screen, for live tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome, ChromeOptions, ChromeService


@contextmanager
def open_browser(folder: Path, *, scripts: bool = True) -> Iterator[Chrome]:
    """Start it with its profile in a folder, and end it; its console is logged."""
    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={folder}",
    ):
        options.add_argument(argument)
    options.add_argument("--window-size=1200,900")
    if not scripts:
        options.add_experimental_option(
            "prefs", {"profile.managed_default_content_settings.javascript": 2}
        )
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = Chrome(options=options, service=ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()
