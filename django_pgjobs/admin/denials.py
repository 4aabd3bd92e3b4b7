"""Tell what the role of the connection lacks, where the server refuses a statement of a page or of an act.

Invariant: whatever else goes wrong stays the error that it is; and as long as nothing is refused, this asks
nothing of the database.
"""

from __future__ import annotations

import logging
import shlex
from contextlib import AbstractContextManager, nullcontext
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, NamedTuple

from django.contrib import admin, messages
from django.db import DEFAULT_DB_ALIAS, ProgrammingError, router, transaction
from django.http import HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import SimpleTemplateResponse, TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from psycopg import errors

from django_pgjobs import rights
from django_pgjobs.sessions import execute_on_django, in_transaction, reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.http import HttpRequest
    from django.urls import URLPattern

    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = object  # a mixin when it runs

logger = logging.getLogger(__name__)

LOOK, ACT = "viewer", "operator"  # who the role of a page has to be, as `pgjobs grants` names them


class Denial(NamedTuple):
    """What the server said to whom, what is missing in the words of GRANT, and what helps."""

    said: str
    role: str
    missing: list[str]
    printing: str = ""  # the command that prints what helps
    running: str = ""  # or what helps by itself

    def __str__(self) -> SafeString:
        """Return it as HTML, for templates and messages."""
        return render_to_string("admin/django_pgjobs/denial.html", {"denial": self})


def denial_of(error: ProgrammingError, alias: str, part: str) -> Denial:
    """Ask the server what its role lacks to be a viewer, say; raise what is another error."""
    cause = error.__cause__
    if not isinstance(cause, errors.InsufficientPrivilege | errors.UndefinedTable):
        raise error
    role, missing, by_row = rights.standing(execute_on_django(alias), part)
    denial = Denial(reason(cause), role, missing)
    on = "" if alias == DEFAULT_DB_ALIAS else f" --database {shlex.quote(alias)}"
    if missing:
        option = " --row-security" if by_row else ""
        command = f"python manage.py pgjobs grants --{part} {shlex.quote(role)}{option}{on}"
        return denial._replace(printing=command)
    if isinstance(cause, errors.UndefinedTable):
        return denial._replace(running=f"python manage.py migrate{on}")
    return denial


def kept_usable(alias: str) -> AbstractContextManager[Any]:
    """Surround what may be refused, so that a transaction that is open outlives it."""
    return transaction.atomic(using=alias) if in_transaction(alias) else nullcontext()


class TellsDenials(_ModelAdmin):
    """For a `ModelAdmin`: a page that is refused says so with status 503, an act that is refused by a message."""

    @property
    def urls(self) -> list[URLPattern]:
        """Surround every view, those of subclasses too."""
        patterns: list[URLPattern] = super().urls
        for pattern in patterns:
            pattern.callback = self._telling(pattern.callback)
        return patterns

    def database(self) -> str:
        """Return the alias of the database that the pages are about."""
        return router.db_for_write(self.model)

    def denial_of(self, error: ProgrammingError, part: str) -> Denial:
        """Return what the role lacks; raise what is another error."""
        return denial_of(error, self.database(), part)

    def _telling(self, view: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(view)
        def telling(request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
            object_id = kwargs.get("object_id")
            response = self._try(partial(view, request, *args, **kwargs), request, object_id)
            if isinstance(response, SimpleTemplateResponse):
                # Its template asks the database too, and Django calls this once the middleware has seen it.
                render = partial(self._try, response.render, request, object_id)
                response.render = render  # type: ignore[method-assign]
            return response

        return telling

    def _try(self, answer: Callable[[], Any], request: HttpRequest, object_id: str | None) -> Any:
        try:
            with kept_usable(self.database()):
                return answer()
        except ProgrammingError as error:
            is_act = request.method == "POST"
            denial = self.denial_of(error, ACT if is_act else LOOK)
        logger.error("The database refuses %s %s: %s", request.method, request.path, denial.said)
        if is_act:
            self.message_user(request, str(denial), messages.ERROR)
            return HttpResponseRedirect(self._page_of(request, object_id))
        context = {
            **self.admin_site.each_context(request),
            "title": gettext("The database refuses this page"),
            "opts": self.opts,
            "cl": {"opts": self.opts},  # the breadcrumbs of a list ask there
            "actions_on_top": True,  # else the page of a list has an inline style, which a CSP refuses
            "media": self.media,
            "denial": denial,
        }
        page = TemplateResponse(request, "admin/django_pgjobs/denied.html", context, status=503)
        return page.render()

    def _page_of(self, request: HttpRequest, object_id: str | None) -> str:
        """Return where an act came from: the page of its object, or the list as it was."""
        pages = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}"
        if object_id is not None:
            return reverse(f"{pages}_change", args=[object_id])
        query = request.GET.urlencode()
        return reverse(f"{pages}_changelist") + (f"?{query}" if query else "")
