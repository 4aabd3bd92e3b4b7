"""What the shop sells and what was ordered."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import F
from django.urls import reverse


class SoldOut(Exception):
    """Nothing is left of a product."""


class Product(models.Model):
    """Something to sell, and how many of it there are."""

    name = models.CharField(max_length=100)
    description = models.CharField(max_length=200)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    stock = models.PositiveIntegerField()
    picture = models.CharField(max_length=100, blank=True)  # a static file

    def __str__(self) -> str:
        return self.name

    def get_absolute_url(self) -> str:
        """Return the page where it can be ordered."""
        return reverse("shop:checkout", args=[self.pk])

    def take_one(self) -> None:
        """Take one from the stock; raise `SoldOut` if none is left.

        Of two customers at once, the second waits here until the first one's transaction ends.
        """
        in_stock = Product.objects.filter(pk=self.pk, stock__gt=0)
        if not in_stock.update(stock=F("stock") - 1):
            raise SoldOut(self.name)


class Order(models.Model):
    """One product for one customer."""

    # In the address of its page: whoever knows it may look, and nobody can guess it.
    reference = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    product = models.ForeignKey(Product, on_delete=models.PROTECT)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    email = models.EmailField()
    name = models.CharField(max_length=100, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    courier_calls = models.PositiveIntegerField(default=0)
    tracking_code = models.CharField(max_length=20, blank=True)

    def __str__(self) -> str:
        return f"order {self.pk}"

    def get_absolute_url(self) -> str:
        """Return the page that shows what became of it."""
        return reverse("shop:order", args=[self.reference])
