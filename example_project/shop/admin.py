"""Orders for the staff of the shop, each with the jobs about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from django.contrib import admin

from django_pgjobs.admin import SubjectJobsMixin
from example_project.shop.models import Order

if TYPE_CHECKING:
    from django.http import HttpRequest

    _OrderAdmin = admin.ModelAdmin[Order]
else:
    _OrderAdmin = admin.ModelAdmin  # not generic when it runs, in every version


@admin.register(Order)
class OrderAdmin(SubjectJobsMixin, _OrderAdmin):
    """Orders, to look at: customers make them, and jobs write the tracking code."""

    list_display = ("__str__", "product", "email", "created_at", "tracking_code")
    list_select_related = ("product",)
    ordering = ("-pk",)
    readonly_fields: ClassVar = ("reference", "created_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        """An order comes with its jobs, which only the checkout enqueues."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        """What was ordered stays as it was."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Order | None = None) -> bool:
        """An order is no mistake: its jobs may be at work."""
        return False
