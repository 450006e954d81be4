"""One thread per worker, a fixed profile for property-based tests, and a browser for pages."""

import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from playwright.sync_api import Browser

torch.set_num_threads(1)
sys.setrecursionlimit(20_000)  # settings of property-based tests fall back on those of the test before, a long chain
settings.register_profile(
    "boundflow", deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), max_examples=6
)
settings.load_profile("boundflow")

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> "Iterator[Browser]":
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
