"""A customer in the example shop, with its own web server and worker, as `make serve` starts them."""

from __future__ import annotations

import os

import pytest
from django import VERSION

from example_project.stage import set_up
from tests.browser.looks import unreadable

pytestmark = pytest.mark.newest


@pytest.fixture(scope="module")
def shop():
    """The shop, still without a worker, and without the waits of the demo."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DATABASE_URL", os.environ["PGJOBS_TEST_URL"])
        with set_up(SHOP_INVOICE_SECONDS="0") as stage:
            yield stage


@pytest.fixture
def site(shop):
    return shop.site


@pytest.fixture
def worker(shop):
    """Return what starts a worker of these queues; it ends with the test."""
    started = []

    def start(*queues):
        started.append(shop.processes.start("worker", "runjobs", "--queues", ",".join(queues)))

    yield start
    for process in started:
        shop.processes.kill(process)


def order(page, product="Rubber boots", email="ada@example.com"):
    page.goto("/")
    page.get_by_role("link", name=f"Buy {product}").click()
    page.get_by_label("Your email address").fill(email)
    page.get_by_role("button", name="Order now").click()
    page.get_by_role("heading", name="Thank you").wait_for()


def statuses(page):
    return dict(
        zip(
            page.locator("code:first-child").all_inner_texts(),
            page.locator(".status").all_inner_texts(),
            strict=True,
        )
    )


def test_a_receipt_arrives_without_a_reload(page, shop, worker):
    order(page)
    page.evaluate("window.loadedOnce = true")
    assert statuses(page)["send_receipt"] == "pending"
    assert "will be sent to ada@example.com" in page.get_by_role("status").inner_text()
    worker("mail")
    page.get_by_text("Your receipt was sent to ada@example.com").wait_for()
    assert statuses(page)["send_receipt"] == "done"
    assert "1 of 4 jobs are finished" in page.get_by_role("status").inner_text()
    assert page.get_by_label("Finished jobs").get_attribute("value") == "1"
    assert page.evaluate("window.loadedOnce")
    assert any("To: ada@example.com" in m.read_text() for m in shop.processes.folder.glob("mail/*"))


def test_failures_are_told_and_the_page_rests_when_all_is_final(page, site, worker):
    page.clock.install()
    order(page)
    worker("mail", "documents", "default")
    page.get_by_text("Last error: 503, please try again later (call 2)").wait_for()
    page.get_by_role("link", name="Reload it").wait_for(state="detached")
    assert statuses(page) == {
        "send_receipt": "done",
        "make_invoice": "done",
        "book_courier": "done",
        "add_loyalty_points": "failed",
    }
    assert "Your parcel is on its way as PARCEL-" in page.get_by_role("status").inner_text()
    assert page.get_by_text("the loyalty programme has ended").is_visible()
    requests = []
    page.on("request", lambda request: requests.append(request.url))
    page.clock.fast_forward(60_000)
    page.evaluate("fetch('/').then(() => null)")
    assert requests == [site]


def test_picture_of_an_order(page, worker, picture):
    order(page)
    worker("mail", "documents", "default")
    page.get_by_text("failed", exact=True).wait_for()
    page.get_by_text("Your parcel is on its way").wait_for()
    picture("order")


def test_it_works_without_script_by_a_reload(chromium, site, worker):
    context = chromium.new_context(base_url=site, java_script_enabled=False)
    page = context.new_page()
    order(page)
    worker("mail")
    while not page.get_by_text("Your receipt was sent to").count():
        page.get_by_role("link", name="Reload it").click()
    context.close()


def test_an_order_is_placed_by_the_keyboard_alone(page):
    page.goto("/products/3/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the content"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("nowhere")
    page.keyboard.press("Enter")
    email = page.get_by_label("Your email address")
    assert email.get_attribute("aria-invalid") == "true"
    reasons = email.get_attribute("aria-describedby").split()
    told = [page.locator(f"[id='{reason}']").inner_text() for reason in reasons]
    assert "Enter a valid email address, such as ada@example.com." in told
    email.focus()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("ada@example.com")
    page.keyboard.press("Tab")
    page.keyboard.type("Ada")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Thank you, Ada!").wait_for()


def test_every_page_comes_with_a_strict_policy(page):
    order(page)
    policy = page.request.get(page.url).headers.get("content-security-policy", "")
    if VERSION < (6, 0):
        pytest.skip("Django has no middleware for it")
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_every_page_fits_its_window_and_can_be_read(page, worker, scheme, width):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 800})

    def check():
        assert unreadable(page, width) == []

    page.goto("/")
    check()
    page.goto("/products/2/")
    page.get_by_role("button", name="Order now").click()
    assert page.get_by_text("Enter your email address.").is_visible()
    check()
    order(page, email=f"{'long' * 15}@{'example.' * 20}com")
    check()
    worker("mail", "documents", "default")
    page.get_by_text("failed", exact=True).wait_for()
    check()
