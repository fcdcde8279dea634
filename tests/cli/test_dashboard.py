"""optuna-dashboard on a study, in a real Chromium."""

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.search.setting import setting

pytestmark = pytest.mark.browser


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Serve the dashboard on a small study with `autotune dashboard`; yield its address."""
    job = setting(tmp_path / "studies" / "seen", on_disk=True)
    job.search(trials=8)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "autotune.cli.main", "dashboard", "seen", "--port", str(port)],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(timeout=10)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    if shutil.which("chromedriver") is None or shutil.which("chromium") is None:
        pytest.fail("chromium and chromedriver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        f"--user-data-dir={tmp_path / 'profile'}",
    ):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def test_the_dashboard_shows_the_study_and_its_trials(
    address: str, browser: webdriver.Chrome
) -> None:
    _wait_for(address)
    browser.get(f"{address}/dashboard")
    WebDriverWait(browser, 30).until(lambda driver: "seen" in _text(driver))
    browser.get(f"{address}/dashboard/studies/1/trials")
    WebDriverWait(browser, 30).until(lambda driver: "8 Trials" in _text(driver))
    for word in ("Complete", "Pruned", "zero_optimization.stage", "status"):
        assert word in _text(browser)


def test_the_dashboard_knows_which_trials_do_not_fit(address: str) -> None:
    _wait_for(address)
    with urllib.request.urlopen(f"{address}/api/studies/1?after=0", timeout=10) as answer:
        trials = json.load(answer)["trials"]
    infeasible = {trial["state"] for trial in trials if any(c > 0 for c in trial["constraints"])}
    feasible = {trial["state"] for trial in trials if all(c <= 0 for c in trial["constraints"])}
    assert infeasible == {"Pruned"}
    assert "Complete" in feasible


def _text(driver: webdriver.Chrome) -> str:
    return driver.find_element(By.TAG_NAME, "body").text


def _wait_for(address: str) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/dashboard/", timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    pytest.fail("the dashboard did not answer within 30 s")
