"""The shop's own tests: `python example_project/manage.py test example_project.shop`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from django.core import mail
from django.test import TestCase

from django_pgjobs import Job
from django_pgjobs.testing import drain
from example_project.shop.models import Order, Product

KINDS = ["add_loyalty_points", "book_courier", "make_invoice", "send_receipt"]


class CheckoutTests(TestCase):
    """What a checkout leaves in the database."""

    def setUp(self) -> None:
        self.product = Product.objects.get(name="The last umbrella")

    def order(self, email: str) -> Any:
        return self.client.post(self.product.get_absolute_url(), {"email": email})

    def test_an_order_comes_with_its_jobs(self) -> None:
        response = self.order("ada@example.com")
        order = Order.objects.get()
        self.assertRedirects(response, order.get_absolute_url())
        jobs = Job.objects.pending().order_by("kind")
        self.assertEqual([job.kind for job in jobs], KINDS)
        self.assertEqual([job.payload for job in jobs], [{"order_id": order.pk}] * 4)
        self.product.refresh_from_db()
        self.assertEqual(self.product.stock, 0)

    def test_what_is_sold_out_leaves_neither_order_nor_job(self) -> None:
        self.order("ada@example.com")
        response = self.order("bob@example.com")
        self.assertContains(response, "somebody else has just bought", status_code=409)
        self.assertEqual(Order.objects.count(), 1)
        self.assertEqual(Job.objects.count(), 4)

    def test_a_wrong_address_is_refused_before_anything_is_written(self) -> None:
        response = self.order("nowhere")
        self.assertContains(response, "valid email address")
        self.assertFalse(Order.objects.exists() or Job.objects.exists())


class JobTests(TestCase):
    """What the jobs of an order do, run by `drain()` in the test's own transaction."""

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

    def test_the_pages_show_what_is_left_and_what_is_going_on(self) -> None:
        self.assertContains(self.client.get("/"), "19 left")
        page = self.client.get(self.order.get_absolute_url())
        for kind in KINDS:
            self.assertContains(page, kind)
        self.assertContains(page, 'http-equiv="refresh"')
