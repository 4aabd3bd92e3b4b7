"""What follows an order, outside of the request: run by `manage.py runjobs`."""

from __future__ import annotations

import os
import time
from decimal import Decimal
from typing import Any

from django.conf import settings
from django.core.mail import send_mail
from django.db.models import Sum

from django_pgjobs import JobContext, Limit, Rate, every, job
from django_pgjobs.pgmq import consumer
from example_project.shop import partners
from example_project.shop.models import Order

_STEPS = 20  # of an invoice


@job(queue="mail")
def send_receipt(order_id: int) -> None:
    """Send the customer an e-mail."""
    order = Order.objects.select_related("product").get(pk=order_id)
    send_mail(
        f"Your receipt for order {order.pk}",
        f"Thank you for buying: {order.product.name}, {order.price} EUR.",
        None,  # from: DEFAULT_FROM_EMAIL
        [order.email],
    )


@job
def book_courier(order_id: int) -> None:
    """Have the parcel fetched. The courier's service is often down: the job is tried again."""
    order = Order.objects.get(pk=order_id)
    order.tracking_code = partners.book_courier(order)
    order.save(update_fields=["tracking_code"])


@job(max_attempts=2)
def add_loyalty_points(order_id: int) -> None:
    """Thank a faithful customer. Not worth more than two attempts."""
    partners.add_loyalty_points(Order.objects.get(pk=order_id).email)


@job(queue="documents", takes_context=True)
def make_invoice(context: JobContext, order_id: int) -> str:
    """Write the invoice, which takes its time, and return the name of its file.

    A worker can die at any line, and then all of it runs again. So the file gets its name when it is
    complete: there is one invoice in the end, never half of one. Staff who cancel it are heard between
    two steps.
    """
    order = Order.objects.select_related("product").get(pk=order_id)
    invoice = settings.SHOP_INVOICES / f"invoice-{order.pk}.txt"
    invoice.parent.mkdir(parents=True, exist_ok=True)
    draft = invoice.with_suffix(".draft")
    draft.write_text(f"{order.product.name}: {order.price} EUR\nWritten by process {os.getpid()}\n")
    for step in range(_STEPS):
        context.check()
        context.progress(step / _STEPS, "Writing the invoice")
        time.sleep(settings.SHOP_INVOICE_SECONDS / _STEPS)
    draft.replace(invoice)
    return invoice.name


@job(queue="documents", concurrency=Limit(2, key="email"))
def write_statement(email: str, page: int) -> str:
    """Write a page of a customer's statement. No customer has more than two at work, and so all threads."""
    folder = settings.SHOP_INVOICES
    folder.mkdir(parents=True, exist_ok=True)
    count = Order.objects.filter(email=email).count()
    time.sleep(settings.SHOP_STATEMENT_SECONDS)
    statement = folder / f"statement-{email}-{page}.txt"
    statement.write_text(f"{email}, page {page}: {count} orders\n")
    return statement.name


@job(rate=Rate(4, per=1))
def collect_instalment(number: int) -> None:
    """Have the bank collect an instalment. It takes four calls a second, from all workers together."""
    partners.collect(number)


@job(schedule=every(seconds=settings.SHOP_REPORT_SECONDS))
def report_sales() -> str:
    """Say what was sold so far: once a day, but for the demo."""
    total: Decimal | None = Order.objects.aggregate(total=Sum("price"))["total"]
    return f"{total or 0} EUR"


@consumer("parcels", vt=settings.SHOP_PARCEL_SECONDS, max_reads=2, dead_letter="parcels_dead")
def print_label(message: dict[str, Any]) -> None:
    """Print the label of a parcel. A checkout sends such messages, and so do programs of the carrier."""
    order = Order.objects.select_related("product").get(pk=message["order"])
    partners.print_label(order, returned=message.get("returned", False))
