"""The addresses of the tests: the admin is all there is."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.urls import path


def icon(_request: HttpRequest) -> HttpResponse:
    """Answer what every browser asks for."""
    return HttpResponse(status=204)


urlpatterns = [path("admin/", admin.site.urls), path("favicon.ico", icon)]
