"""The pages of the shop. `checkout` is the one to copy from."""

from __future__ import annotations

from http import HTTPStatus
from uuid import UUID

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from django_pgjobs import Job, Unique, get_job
from django_pgjobs.pgmq import Queue
from example_project.shop.forms import CheckoutForm
from example_project.shop.jobs import (
    add_loyalty_points,
    book_courier,
    make_invoice,
    send_receipt,
)
from example_project.shop.models import Order, Product, SoldOut
from example_project.shop.progress import Progress


def product_list(request: HttpRequest) -> HttpResponse:
    """Show what there is to buy."""
    return render(request, "shop/product_list.html", {"products": Product.objects.order_by("pk")})


def checkout(request: HttpRequest, product_id: int) -> HttpResponse:
    """Place an order: the order, its jobs and its message are committed together, or not at all."""
    product = get_object_or_404(Product, pk=product_id)
    form = CheckoutForm(request.POST if request.method == "POST" else None)
    status = HTTPStatus.OK
    if form.is_valid():
        try:
            with transaction.atomic():
                price = product.price
                order = Order.objects.create(product=product, price=price, **form.cleaned_data)
                # All are about the order: its page here and its page in the admin find them by that.
                # The first by name, the others by function, which mypy checks.
                get_job("send_receipt").using(subject=order).enqueue(order_id=order.pk)
                make_invoice.using(subject=order).enqueue(order_id=order.pk)
                book_courier.using(subject=order).enqueue(order_id=order.pk)
                add_loyalty_points.using(subject=order).enqueue(order_id=order.pk)
                # And a message, for whoever reads the queue: here it is a consumer of the shop's own.
                Queue("parcels").send({"order": order.pk})
                product.take_one()
        except SoldOut:
            form.add_error(None, "Sorry, somebody else has just bought the last one.")
            status = HTTPStatus.CONFLICT
        else:
            return redirect(order)
    return render(request, "shop/checkout.html", {"product": product, "form": form}, status=status)


@never_cache
def order_detail(request: HttpRequest, reference: UUID) -> HttpResponse:
    """Show an order and the jobs about it: rows like any others."""
    order = get_object_or_404(Order.objects.select_related("product"), reference=reference)
    jobs = Job.objects.for_subject(order).order_by("pk")
    context = {"order": order, "progress": Progress(jobs)}
    return render(request, "shop/order_detail.html", context)


@require_POST
def resend_receipt(_request: HttpRequest, reference: UUID) -> HttpResponse:
    """Send the receipt again, once an hour at most, however often the button is pressed."""
    order = get_object_or_404(Order, reference=reference)
    send_receipt.using(unique=Unique(period=3600), subject=order).enqueue(order_id=order.pk)
    return redirect(order)
