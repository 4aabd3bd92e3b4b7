"""An app that takes back what the shop's kinds declare."""

from __future__ import annotations

from django.apps import AppConfig


class Lies(AppConfig):
    name = "tests.acceptance.lies"

    def ready(self) -> None:
        from django_pgjobs import registry, schedules  # noqa: PLC0415 -- not before the models
        from django_pgjobs.job_types import JobType  # noqa: PLC0415 -- likewise
        from django_pgjobs.limits import Limits  # noqa: PLC0415 -- likewise

        for kind in registry.kinds().values():
            kind.limits = Limits()
        JobType._unique_key = lambda *_: None
        real = schedules._enqueue

        def enqueue_twice(*arguments, **options):
            real(*arguments, **options)
            return real(*arguments, **options)

        schedules._enqueue = enqueue_twice
