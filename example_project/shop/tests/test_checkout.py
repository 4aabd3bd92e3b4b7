"""The pages of the products, and what a checkout leaves in the database."""

from __future__ import annotations

from typing import Any

from django.test import Client, TestCase

from django_pgjobs import Job
from django_pgjobs.pgmq import Queue
from django_pgjobs.testing import assert_enqueued
from example_project.shop.jobs import send_receipt
from example_project.shop.models import Order, Product

KINDS = ["add_loyalty_points", "book_courier", "make_invoice", "send_receipt"]
HOSTILE = "\"><script>alert('x')</script>"


class CheckoutTests(TestCase):
    """A customer orders, or fails to."""

    def setUp(self) -> None:
        self.product = Product.objects.get(name="The last umbrella")

    def order(self, **fields: str) -> Any:
        return self.client.post(self.product.get_absolute_url(), fields)

    def assert_nothing_was_written(self) -> None:
        self.assertFalse(Order.objects.exists() or Job.objects.exists())

    def test_an_order_comes_with_its_jobs(self) -> None:
        response = self.order(email="ada@example.com")
        order = Order.objects.get()
        self.assertRedirects(response, order.get_absolute_url())
        for kind in KINDS:
            assert_enqueued(kind, payload={"order_id": order.pk}, subject=order, delay=0, count=1)
        assert_enqueued(send_receipt, queue="mail")
        self.product.refresh_from_db()
        self.assertEqual(self.product.stock, 0)

    def test_an_order_sends_a_message_to_the_warehouse(self) -> None:
        self.order(email="ada@example.com")
        [message] = Queue("parcels").read()
        self.assertEqual(message.message, {"order": Order.objects.get().pk})

    def test_what_is_sold_out_leaves_neither_order_nor_job(self) -> None:
        self.order(email="ada@example.com")
        response = self.order(email="bob@example.com")
        self.assertContains(response, "somebody else has just bought", status_code=409)
        self.assertEqual(Order.objects.count(), 1)
        assert_enqueued(send_receipt, count=1)
        self.assertEqual(Job.objects.count(), 4)
        self.assertEqual(Queue("parcels").metrics().length, 1)

    def test_what_is_sold_out_is_not_offered(self) -> None:
        self.assertContains(self.client.get("/"), self.product.get_absolute_url())
        Product.objects.filter(pk=self.product.pk).update(stock=0)
        self.assertNotContains(self.client.get("/"), self.product.get_absolute_url())
        page = self.client.get(self.product.get_absolute_url())
        self.assertContains(page, "nothing left")
        self.assertNotContains(page, "<form")

    def test_a_wrong_address_is_refused_before_anything_is_written(self) -> None:
        response = self.order(email="nowhere")
        self.assertContains(response, "valid email address")
        self.assertContains(response, "<title>Error:")
        self.assert_nothing_was_written()

    def test_an_empty_form_is_told_what_is_missing(self) -> None:
        for fields in ({}, {"email": "  ", "name": ""}):
            with self.subTest(fields):
                self.assertContains(self.order(**fields), "Enter your email address.", count=1)
        self.assert_nothing_was_written()

    def test_what_does_not_fit_is_refused(self) -> None:
        response = self.order(email=f"ada@{'example.' * 32}com", name="x" * 101)
        self.assertContains(response, "at most 254 characters")
        self.assertContains(response, "at most 100 characters")
        self.assert_nothing_was_written()

    def test_what_was_filled_in_is_shown_again_and_harms_nobody(self) -> None:
        response = self.order(email=HOSTILE, name=HOSTILE)
        self.assertNotContains(response, "<script")
        self.assertContains(response, "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;", count=2)

    def test_another_site_cannot_order(self) -> None:
        forger = Client(enforce_csrf_checks=True)
        address = self.product.get_absolute_url()
        self.assertEqual(forger.post(address, {"email": "ada@example.com"}).status_code, 403)
        self.assert_nothing_was_written()
