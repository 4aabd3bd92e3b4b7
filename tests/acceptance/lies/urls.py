"""The example's addresses, with a checkout whose block is not atomic."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

from example_project.shop import views
from example_project.urls import urlpatterns

__all__ = ["urlpatterns"]

views.transaction = SimpleNamespace(atomic=nullcontext)
