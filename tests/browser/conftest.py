"""A real Chromium, and what it complains about.

`PGJOBS_TEST_CHROMIUM` is the command that starts it, where it is not found or needs options.
"""

from __future__ import annotations

import base64
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connections

sync_api = pytest.importorskip("playwright.sync_api")

NAMES = ("chromium", "chromium-browser", "google-chrome")
PASSWORD = "of everybody"  # noqa: S105 -- in a test
LARGEST_PICTURE = 100_000  # bytes
QUIET = ("--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="module")
def chromium() -> Iterator[sync_api.Browser]:
    """A browser of these tests alone: Playwright's loop in this thread would disturb others."""
    found = next(filter(None, map(shutil.which, NAMES)), "")
    name, *options = shlex.split(os.environ.get("PGJOBS_TEST_CHROMIUM", found)) or [""]
    if not name or not (command := shutil.which(name)):
        pytest.skip(f"no Chromium: {name or ' nor '.join(NAMES)} is not on the PATH")
    with pytest.MonkeyPatch.context() as patch, sync_api.sync_playwright() as playwright:
        # Because of that loop Django would take every query here for one of async code.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
        browser = playwright.chromium.launch(
            executable_path=command, args=[*options, *QUIET], headless=True
        )
        yield browser
        browser.close()
        connections.close_all()  # while its loop runs, this thread has connections beside its own


@pytest.fixture
def site(live_server) -> str:
    """The address of what is browsed."""
    return live_server.url


@pytest.fixture
def page(chromium, site) -> Iterator[sync_api.Page]:
    """A page that fails its test at its end for whatever it complained about."""
    context = chromium.new_context(base_url=site)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda m: complaints.append(m.text) if m.type in {"error", "warning"} else 0)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "request",
        lambda r: None if r.url.startswith((site, "data:")) else complaints.append(r.url),
    )
    yield page
    context.close()
    assert not complaints


@pytest.fixture
def picture(page, tmp_path) -> Callable[..., None]:
    """Return what takes a picture for the documentation: `make pictures` says to where."""
    folder = Path(os.environ.get("PGJOBS_TEST_PICTURES", tmp_path))
    asking = {"format": "webp", "quality": 80}

    def take(name: str, height: int = 800) -> None:
        page.set_viewport_size({"width": 1280, "height": height})
        session = page.context.new_cdp_session(page)  # Playwright itself takes no WebP
        data = base64.b64decode(session.send("Page.captureScreenshot", asking)["data"])
        (folder / f"{name}.webp").write_bytes(data)
        assert len(data) < LARGEST_PICTURE, name

    return take


@pytest.fixture
def log_in(page):
    """Return what logs somebody in who has these permissions, or all."""

    def enter(*permissions: str) -> None:
        name = "viewer" if permissions else "root"
        user = User.objects.create_user(
            name,
            password=PASSWORD,
            is_staff=True,
            is_superuser=not permissions,
        )
        user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
        page.goto("/admin/")
        page.get_by_label("Username").fill(name)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()

    return enter
