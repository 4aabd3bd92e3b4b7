"""Staff of several kinds, and a client that is logged in as one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

PEOPLE = {
    "nobody": (),
    "viewer": ("view_job", "view_worker", "view_queue"),
    "retrier": ("view_job", "retry_job"),
    "canceller": ("view_job", "cancel_job"),
    "deleter": ("view_job", "delete_job"),
    "pauser": ("view_queue", "change_queue"),
    "superuser": (),
}


@pytest.fixture
def as_user(db: None) -> Callable[[str], Client]:
    """Return what logs a client in as one of `PEOPLE`, or as a "visitor" who is nobody's."""

    def log_in(name: str) -> Client:
        client = Client(enforce_csrf_checks=False)
        if name == "visitor":
            return client
        user = User.objects.create_user(name, is_staff=True, is_superuser=name == "superuser")
        user.user_permissions.set(Permission.objects.filter(codename__in=PEOPLE[name]))
        client.force_login(user)
        return client

    return log_in
