"""What the jobs of an order do, run by `drain()` in the test's own transaction."""

from __future__ import annotations

import tempfile
from pathlib import Path

from django.core import mail
from django.core.management import call_command
from django.test import TestCase

from django_pgjobs import Job
from django_pgjobs.testing import drain, immediate, perform
from example_project.shop.jobs import report_sales, send_receipt
from example_project.shop.models import Order, Product


class JobTests(TestCase):
    """An order whose due jobs have run once."""

    def setUp(self) -> None:
        product = Product.objects.get(name="Rubber boots")
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        with self.settings(SHOP_INVOICES=folder, SHOP_INVOICE_SECONDS=0):
            self.client.post(product.get_absolute_url(), {"email": "ada@example.com"})
            drain()
        self.files = [file.name for file in folder.iterdir()]
        self.order = Order.objects.get()

    def test_the_receipt_goes_to_the_customer(self) -> None:
        [receipt] = mail.outbox
        self.assertEqual(receipt.to, ["ada@example.com"])
        self.assertIn("Rubber boots, 25.50 EUR", receipt.body)

    def test_the_invoice_is_complete(self) -> None:
        self.assertEqual(self.files, [f"invoice-{self.order.pk}.txt"])

    def test_the_courier_is_asked_again_later(self) -> None:
        job = Job.objects.delayed().get(kind="book_courier")
        self.assertEqual(job.attempts, 1)
        self.assertIn("503", job.last_error)

    def test_the_courier_answers_in_the_end(self) -> None:
        drain(kinds=["book_courier"], with_delayed=True)
        self.order.refresh_from_db()
        self.assertTrue(self.order.tracking_code)

    def test_the_pages_show_what_is_left_and_what_has_happened(self) -> None:
        self.assertContains(self.client.get("/"), "19 left")
        page = self.client.get(self.order.get_absolute_url())
        self.assertContains(page, "Your receipt was sent to")
        self.assertContains(page, "Last error: 503, please try again later (call 1)")
        self.assertContains(page, "2 of 4 jobs are finished")


class ReceiptTests(TestCase):
    """From the customer's click to the e-mail, as if a worker was there."""

    def setUp(self) -> None:
        self.product = Product.objects.get(name="The last umbrella")

    def order(self, email: str) -> None:
        with immediate(kinds=[send_receipt], raise_on_failure=True):
            self.client.post(self.product.get_absolute_url(), {"email": email})

    def test_who_has_bought_something_gets_a_receipt(self) -> None:
        self.order("ada@example.com")
        [receipt] = mail.outbox
        self.assertEqual(receipt.to, ["ada@example.com"])

    def test_who_came_too_late_gets_none(self) -> None:
        self.order("ada@example.com")
        self.order("bob@example.com")
        self.assertEqual(len(mail.outbox), 1)


class MonthTests(TestCase):
    """What begins with a month."""

    def setUp(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(self.settings(SHOP_INVOICES=folder, SHOP_STATEMENT_SECONDS=0))
        call_command("newmonth", "ada@example.com", "bob@example.com", pages=2, instalments=3)
        drain()
        self.files = sorted(file.name for file in folder.iterdir())

    def test_each_customer_has_all_pages_of_the_statement(self) -> None:
        people = ("ada@example.com", "bob@example.com")
        self.assertEqual(self.files, [f"statement-{who}-{n}.txt" for who in people for n in (1, 2)])

    def test_a_customer_s_pages_share_a_limit(self) -> None:
        keys = Job.objects.filter(kind="write_statement").values_list("concurrency_key", flat=True)
        self.assertEqual(set(keys), {f"write_statement:{w}@example.com" for w in ("ada", "bob")})

    def test_every_instalment_is_collected_once(self) -> None:
        instalments = Job.objects.filter(kind="collect_instalment")
        self.assertEqual(instalments.done().count(), 3)

    def test_the_report_adds_up_what_was_sold(self) -> None:
        product = Product.objects.get(name="Rubber boots")
        Order.objects.create(product=product, price=product.price, email="ada@example.com")
        self.assertEqual(perform(report_sales), "25.50 EUR")
