"""A view that drains one batch of jobs per call, where no worker can run.

Invariant: without `PGJOBS["DRAIN_TOKEN"]` there is no such page; nobody runs a job who does not send it;
and no outcome of a job makes the answer an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from django.db import connections, router, transaction
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.crypto import constant_time_compare
from django.utils.decorators import method_decorator
from django.views.decorators.csrf import csrf_exempt
from django.views.generic import View

from django_pgjobs import batches, conf
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.models import Job
from django_pgjobs.options import check_queue
from django_pgjobs.sessions import CONNECTION_ERRORS, SCHEMA_ERRORS, reason
from django_pgjobs.worker_options import WorkerOptions

logger = logging.getLogger(__name__)

MOST_JOBS, MOST_SECONDS, MOST_THREADS = 1_000_000, 3_600, 100


@method_decorator(csrf_exempt, name="dispatch")
class DrainView(View):
    """Drain a batch at a POST with `Authorization: Bearer` and the token of the settings.

    `path("jobs/drain", DrainView.as_view(max_jobs=50, queues=["mail"]))`
    """

    http_method_names = ["post"]  # noqa: RUF012 -- as in Django

    max_jobs: int = 100
    seconds: float = 20.0  # in which jobs may start
    shutdown_timeout: float = 5.0  # for what is running then
    threads: int = 4
    queues: Sequence[str] | None = None
    database: str | None = None

    @classmethod
    def as_view(cls, **initkwargs: Any) -> Callable[..., HttpResponseBase]:
        """Return the view, which no `ATOMIC_REQUESTS` and no demand for a login concerns.

        Raises:
            InvalidOption: an argument has the wrong type or is out of range.

        """
        view = super().as_view(**initkwargs)
        cls(**initkwargs).check()
        for alias in connections:
            view = transaction.non_atomic_requests(using=alias)(view)
        view.login_required = False  # type: ignore[attr-defined] # for LoginRequiredMiddleware
        view.needs_drain_token = True  # type: ignore[attr-defined] # for the system checks
        return view

    def check(self) -> None:
        """Raise InvalidOption where an argument cannot be used."""
        _check_number("max_jobs", self.max_jobs, MOST_JOBS, whole=True)
        _check_number("threads", self.threads, MOST_THREADS, whole=True)
        _check_number("seconds", self.seconds, MOST_SECONDS)
        _check_number("shutdown_timeout", self.shutdown_timeout, MOST_SECONDS)
        if isinstance(self.queues, str) or self.queues == []:
            raise InvalidOption(
                f"DrainView.queues must be a list of names, got {self.queues!r}. Write it as "
                '["mail"]; leave it out for every queue.'
            )
        for queue in self.queues or ():
            check_queue(queue)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Refuse what does not have the token, and have nobody keep the answer."""
        token = conf.get().drain_token
        if token is None:
            response: HttpResponseBase = _error(404, "Not found.")
        elif not self.is_authorized(request, token):
            response = _error(401, "The header Authorization must be Bearer and the token.")
            response["WWW-Authenticate"] = "Bearer"
        else:
            response = super().dispatch(request, *args, **kwargs)
        response["Cache-Control"] = "no-store"
        return response

    def is_authorized(self, request: HttpRequest, token: str) -> bool:
        """Say whether a request comes from who may drain; this takes as long for any guess."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        return scheme.lower() == "bearer" and constant_time_compare(given.strip(), token)

    def post(self, _request: HttpRequest, *_args: Any, **_kwargs: Any) -> HttpResponse:
        """Drain a batch and say what became of it."""
        options = WorkerOptions(
            database=self.database or router.db_for_write(Job),
            queues=self.queues,
            threads=self.threads,
            poll=conf.get().poll,
            shutdown_timeout=self.shutdown_timeout,
            max_jobs=self.max_jobs,
        )
        try:
            batch = batches.run(options, self.seconds)
        except (*CONNECTION_ERRORS, *SCHEMA_ERRORS) as error:
            logger.error("No batch can be drained: %s", reason(error))  # noqa: TRY400 -- that is all
            return _error(503, "The database of the jobs cannot be used: the log says why.")
        left = "more" if batch.more else "nothing"
        return JsonResponse({"done": batch.done, "failed": batch.failed, "left": left})


def _error(status: int, text: str) -> HttpResponse:
    return JsonResponse({"error": text}, status=status)


def _check_number(name: str, value: object, most: int, *, whole: bool = False) -> None:
    number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if not number or not 1 <= value <= most:  # type: ignore[operator] # not so for NaN
        kind = "a whole number" if whole else "a number of seconds"
        raise InvalidOption(
            f"DrainView.{name} must be {kind} from 1 to {most}, got {value!r}. "
            "Correct it in as_view()."
        )
