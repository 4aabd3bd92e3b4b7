"""Web services of other companies, played by functions that fail like the real ones, but on cue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.conf import settings
from django.db.models import F

if TYPE_CHECKING:
    from example_project.shop.models import Order

CALLS_UNTIL_AN_ANSWER = 3


class ServiceUnavailable(Exception):
    """A partner's service gave no useful answer."""


def book_courier(order: Order) -> str:
    """Return the tracking code of an order: the courier answers only the third call about it."""
    order.courier_calls = F("courier_calls") + 1
    order.save(update_fields=["courier_calls"])
    order.refresh_from_db()
    if order.courier_calls < CALLS_UNTIL_AN_ANSWER:
        message = f"503, please try again later (call {order.courier_calls})"
        raise ServiceUnavailable(message)
    return f"PARCEL-{order.pk:04}"


def add_loyalty_points(email: str) -> None:
    """Fail: the programme has ended, unless somebody has opened it again meanwhile."""
    if settings.SHOP_LOYALTY.exists():
        return
    message = f"410, no points for {email}: the loyalty programme has ended"
    raise ServiceUnavailable(message)


def print_label(order: Order, *, returned: bool) -> str:
    """Print the label of a parcel and return it. Those of parcels that come back are on red paper."""
    if returned and not settings.SHOP_RED_PAPER.exists():
        message = f"The printer has no red paper for order {order.pk}"
        raise ServiceUnavailable(message)
    name = f"{'return' if returned else 'parcel'}-{order.pk}.txt"
    settings.SHOP_LABELS.mkdir(parents=True, exist_ok=True)
    (settings.SHOP_LABELS / name).write_text(f"{order.product.name} for {order.email}\n")
    return name


def collect(number: int) -> None:
    """Collect an instalment: the bank always does, when it is not called too often."""
