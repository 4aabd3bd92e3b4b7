"""The addresses of the example: the shop is all there is."""

from __future__ import annotations

from django.urls import include, path

urlpatterns = [path("", include("example_project.shop.urls"))]
