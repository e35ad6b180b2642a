"""The served screen and the HTML report in Chromium, driven by selenium; never skipped in CI."""

import base64
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import pytest

if not os.environ.get("CI"):
    pytest.importorskip("selenium")
from selenium import webdriver
from selenium.webdriver import ActionChains, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By

from brrrtop.exporters.html import page
from brrrtop.kernel_names.readable import short_name
from brrrtop.session.analyze import analyze
from brrrtop.sources.registry import open_source
from tests.cli.test_serve import serving

RECORDING = Path(__file__).parents[1] / "recordings" / "h200" / "item_sync.brrr"
OPTIONS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-component-update "
    "--disable-background-networking --disable-sync --window-size=1400,900"
)


@pytest.fixture
def browser(tmp_path) -> Iterator[webdriver.Chrome]:
    chromium = next(filter(None, map(shutil.which, ("chromium", "google-chrome"))), None)
    driver = shutil.which("chromedriver")
    if chromium is None or driver is None:
        assert not os.environ.get("CI"), ".ci/run installs Chromium and its driver"
        pytest.skip("no Chromium with its driver here")
    options = ChromeOptions()
    options.binary_location = chromium
    for option in (*OPTIONS.split(), f"--user-data-dir={tmp_path / 'profile'}"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    options.add_experimental_option("prefs", {"download.default_directory": str(tmp_path)})
    running = webdriver.Chrome(options, ChromeService(driver))
    running.set_page_load_timeout(60)
    try:
        yield running
    finally:
        running.quit()


class Watched:
    """What a page asked for and was sent, by the browser's own log."""

    def __init__(self, browser: webdriver.Chrome) -> None:
        self.browser, self.shown, self.addresses = browser, "", set[str]()

    def read(self) -> None:
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            words = message["params"]
            if message["method"] == "Network.requestWillBeSent":
                url = words["request"]["url"]
                if not url.startswith(("data:", "chrome:", "chrome-untrusted:")):
                    self.addresses.add(url)
            elif message["method"] == "Network.webSocketFrameReceived":
                frame = words["response"]
                data = frame["payloadData"]
                raw = data.encode() if frame["opcode"] == 1 else base64.b64decode(data)
                self.shown += raw.decode("utf-8", "replace")

    def until(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 100
        while not done():
            assert time.monotonic() < deadline, self.shown[-3000:]
            time.sleep(0.1)
            self.read()

    def complaints(self) -> list[str]:
        """What failed or was forbidden; nobody has an icon for the tab."""
        logged = self.browser.get_log("browser")
        failed = [entry["message"] for entry in logged if entry["level"] == "SEVERE"]
        return [message for message in failed if "/favicon.ico " not in message]


def press(browser: webdriver.Chrome, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


@pytest.mark.timeout(400)
def test_the_served_screen_takes_keys_downloads_and_asks_nobody_else(browser, tmp_path):
    with serving() as (_, address):
        bare = address.partition("?")[0]
        browser.get(bare)
        assert "?token=" in browser.page_source, "who has no token is told where it is"
        watched = Watched(browser)
        assert watched.complaints(), "403 is in the log that must be empty below"
        browser.get(address)
        assert browser.current_url == bare, "nobody reads the token over a shoulder"
        watched.until(lambda: "DataLoader" in watched.shown)
        browser.find_element(By.ID, "terminal").click()
        press(browser, "?")
        watched.until(lambda: "this help" in watched.shown)
        press(browser, "1")
        watched.until(lambda: watched.shown.count("DataLoader") > 1)
        press(browser, "S")
        watched.until(lambda: "Enter saves" in watched.shown)

        attempts = count(1)

        def is_saved() -> bool:
            if next(attempts) % 5 == 0:  # lost on a busy machine: a person would ask again
                press(browser, "\ue00c", "S")
                time.sleep(1.0)
            press(browser, "\ue007")  # Enter takes the name that it proposes, once it takes keys
            time.sleep(2.0)
            return any(tmp_path.glob("brrrtop-*.svg"))

        watched.until(is_saved)
        saved = next(tmp_path.glob("brrrtop-*.svg"))
        assert saved.read_text().lstrip().startswith("<svg")
        assert {urlsplit(one).netloc for one in watched.addresses} == {urlsplit(address).netloc}
        assert watched.complaints() == []


@pytest.mark.timeout(400)
def test_the_report_is_a_page_that_stands_alone(browser, tmp_path):
    source = open_source(RECORDING)
    try:
        snapshot = analyze(source)
    finally:
        source.close()
    (tmp_path / "report.html").write_text(page(snapshot), encoding="utf-8")
    address = (tmp_path / "report.html").as_uri()
    watched = Watched(browser)
    browser.get(address)
    assert snapshot.estimate is not None and snapshot.advisories
    text = browser.find_element(By.TAG_NAME, "body").text
    assert short_name(snapshot.estimate.kernels[0].name)[:20] in text
    assert snapshot.advisories[0].suggests[:40] in text
    assert all(one.is_displayed() for one in browser.find_elements(By.TAG_NAME, "svg"))
    width = browser.execute_script("return document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "nothing is cut off or must be pulled into view"
    watched.read()
    assert watched.addresses == {address}
    assert watched.complaints() == []
