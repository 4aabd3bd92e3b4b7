"""The page of an order: who may see it, what it says of its jobs, and until when it looks again."""

from __future__ import annotations

import uuid
from typing import Any
from unittest import skipIf

import django
from django.contrib.auth.models import User
from django.test import SimpleTestCase, TestCase
from django.utils import timezone

from django_pgjobs import Job
from example_project.shop.models import Order, Product
from example_project.shop.progress import Step
from example_project.shop.tests.test_checkout import HOSTILE, KINDS


class OrderPageTests(TestCase):
    """One order, just placed."""

    def setUp(self) -> None:
        product = Product.objects.get(name="Rubber boots")
        fields = {"email": "ada@example.com", "name": "Ada"}
        self.client.post(product.get_absolute_url(), fields)
        self.order = Order.objects.get()

    def page(self) -> Any:
        return self.client.get(self.order.get_absolute_url())

    def test_it_shows_the_order_and_its_jobs(self) -> None:
        self.assertContains(self.page(), "Thank you, Ada!")
        for kind in KINDS:
            self.assertContains(self.page(), f"<code>{kind}</code>", count=1)
        self.assertContains(self.page(), '<span class="status pending">pending</span>', count=4)
        self.assertContains(self.page(), "0 of 2 attempts", count=1)

    def test_its_address_cannot_be_guessed(self) -> None:
        for guess in (self.order.pk, uuid.uuid4()):
            self.assertEqual(self.client.get(f"/orders/{guess}/").status_code, 404)

    def test_no_cache_keeps_it(self) -> None:
        self.assertIn("no-store", self.page()["Cache-Control"])

    def test_the_jobs_of_others_are_not_on_it(self) -> None:
        self.client.post(self.order.product.get_absolute_url(), {"email": "bob@example.com"})
        self.assertContains(self.page(), "send_receipt", count=1)

    def test_its_jobs_are_found_by_what_they_are_about(self) -> None:
        Job.objects.update(payload={})
        self.assertEqual(Job.objects.for_subject(self.order).count(), 4)
        self.assertContains(self.page(), "0 of 4 jobs are finished")

    def test_staff_see_its_jobs_and_change_nothing(self) -> None:
        self.client.force_login(User.objects.create_superuser("staff"))
        self.assertContains(self.client.get("/admin/shop/order/"), self.order.email)
        address = f"/admin/shop/order/{self.order.pk}/change/"
        for job in Job.objects.all():
            link = f'href="/admin/django_pgjobs/job/{job.pk}/change/"'
            self.assertContains(self.client.get(address), link)
        self.assertNotContains(self.client.get(address), 'name="_save"')
        self.assertEqual(self.client.post(address, {"email": "x@example.com"}).status_code, 403)

    def test_it_looks_again_while_something_goes_on(self) -> None:
        for sign in ("order.js", 'http-equiv="refresh"', "Reload it"):
            self.assertContains(self.page(), sign)
        Job.objects.exclude(kind="make_invoice").cancel()
        self.assertContains(self.page(), "3 of 4 jobs are finished")
        self.assertContains(self.page(), "order.js")
        Job.objects.pending().cancel()
        for sign in ("order.js", 'http-equiv="refresh"', "Reload it"):
            self.assertNotContains(self.page(), sign)

    def test_it_can_be_seen_when_the_jobs_are_gone(self) -> None:
        Job.objects.all().delete()
        self.assertContains(self.page(), "No job is left")

    def test_it_tells_the_last_error_without_its_class(self) -> None:
        errors = [{"message": "503, the first"}, {"message": "504, the second"}]
        Job.objects.filter(kind="book_courier").update(errors=errors, last_error="a.B: 504")
        self.assertContains(self.page(), "Last error: 504, the second")
        self.assertNotContains(self.page(), "503")

    def test_a_receipt_is_sent_again_once_an_hour(self) -> None:
        self.assertNotContains(self.page(), "Send the receipt again")
        Job.objects.filter(kind="send_receipt").update(
            status="done", finished_at=timezone.now(), attempts=1
        )
        self.assertContains(self.page(), "Send the receipt again")
        address = f"{self.order.get_absolute_url()}receipt/"
        for _ in range(2):
            self.assertRedirects(self.client.post(address), self.order.get_absolute_url())
        self.assertEqual(Job.objects.pending().filter(kind="send_receipt").count(), 1)

    def test_a_receipt_is_not_sent_again_by_a_link(self) -> None:
        address = f"{self.order.get_absolute_url()}receipt/"
        self.assertEqual(self.client.get(address).status_code, 405)
        self.assertEqual(Job.objects.filter(kind="send_receipt").count(), 1)

    def test_hostile_text_is_shown_as_text(self) -> None:
        Order.objects.update(name=HOSTILE, email=HOSTILE, tracking_code=HOSTILE[:20])
        Product.objects.update(name=HOSTILE, description=HOSTILE)
        Job.objects.update(kind=HOSTILE, queue=HOSTILE, last_error=HOSTILE)
        Job.objects.filter(pk=Job.objects.earliest("pk").pk).update(kind="send_receipt")
        for address in (self.order.get_absolute_url(), "/", self.order.product.get_absolute_url()):
            page = self.client.get(address)
            self.assertNotContains(page, "<script>")
            self.assertContains(page, "&lt;script&gt;")

    @skipIf(django.VERSION < (6, 0), "Django has no middleware for it")
    def test_it_forbids_whatever_is_not_its_own(self) -> None:
        policy = self.page()["Content-Security-Policy"]
        self.assertIn("default-src 'none'", policy)
        self.assertNotIn("unsafe", policy)


class StepTests(SimpleTestCase):
    """The words for each status."""

    def test_every_status_has_its_words(self) -> None:
        at = timezone.now().replace(hour=9, minute=5, second=7)
        for expected, status, attempts in [
            ("Waits for a worker.", "pending", 0),
            ("The next attempt is due at 09:05:07 UTC.", "pending", 1),
            ("A worker is running it.", "running", 1),
            ("Done at attempt 2.", "done", 2),
            ("We have given up.", "failed", 5),
            ("cancelled", "cancelled", 0),
        ]:
            with self.subTest(status=status, attempts=attempts):
                job = Job(kind="send_receipt", status=status, attempts=attempts, run_at=at, meta={})
                self.assertIn(expected, Step(job).story)
        job = Job(kind="make_invoice", status="running", meta={"progress": {"fraction": 0.35}})
        self.assertEqual(Step(job).story, "A worker is running it: 35% done.")

    def test_a_kind_without_a_title_is_called_by_its_name(self) -> None:
        self.assertEqual(Step(Job(kind="send_receipt")).title, "Receipt by email")
        self.assertEqual(Step(Job(kind="count_sheep")).title, "count_sheep")
