"""What is wrong with the project's settings, as far as they are read without a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning  # noqa: A004 -- its name in Django
from django.urls import URLResolver, get_resolver

from django_pgjobs import conf
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.options import check_queue

_DIFFERENT = 8  # characters: a random token of the shortest length has more, all but never fewer


def has_valid_settings() -> bool:
    """Whether `conf.get()` has an answer; where it has none, check_settings() tells."""
    return not any(conf.problems(getattr(settings, "PGJOBS", {})))


def check_settings(**_kwargs: Any) -> list[CheckMessage]:
    """Report the faults of the `PGJOBS` setting: pgjobs.E001 to pgjobs.E004, E006, E007."""
    given = getattr(settings, "PGJOBS", {})
    found: list[CheckMessage] = [
        Error(problem.message, hint=problem.hint, id=problem.id) for problem in conf.problems(given)
    ]
    queues = given.get("QUEUES") if isinstance(given, Mapping) else None
    for name in queues if isinstance(queues, Mapping) else ():
        try:
            if isinstance(name, str) and name:  # else it is told above
                check_queue(name)
        except InvalidOption as error:
            found.append(
                Error(
                    f"PGJOBS['QUEUES'] must have names of queues for its keys, got: {error}",
                    hint="No job can be in a queue of that name. Correct or remove it.",
                    id="pgjobs.E003",
                )
            )
    return found


def check_drain_token(**_kwargs: Any) -> list[CheckMessage]:
    """Report what a token is no use for: pgjobs.W014, W015."""
    if not has_valid_settings():
        return []
    token = conf.get().drain_token
    if token is None and getattr(settings, "ROOT_URLCONF", None) and _is_drained(get_resolver()):
        return [
            Warning(
                "PGJOBS['DRAIN_TOKEN'] must be set where a DrainView has an address, got none.",
                hint="Set it to a random text; until then that address answers 404, whoever asks.",
                id="pgjobs.W015",
            )
        ]
    if token is None or (len(set(token)) >= _DIFFERENT and token != settings.SECRET_KEY):
        return []
    return [
        Warning(
            "PGJOBS['DRAIN_TOKEN'] must be random and a secret of its own, got "
            + ("the SECRET_KEY." if token == settings.SECRET_KEY else "few different characters."),
            hint='Make one: python -c "import secrets; print(secrets.token_urlsafe(32))".',
            id="pgjobs.W014",
        )
    ]


def _is_drained(resolver: URLResolver) -> bool:
    """Whether an address leads to the view that drains."""
    return any(
        _is_drained(pattern)
        if isinstance(pattern, URLResolver)
        else getattr(pattern.callback, "needs_drain_token", False)
        for pattern in resolver.url_patterns
    )


def check_debug(**_kwargs: Any) -> list[CheckMessage]:
    """Report what only debugging wants: pgjobs.W012. Django runs it for `check --deploy`."""
    if not settings.DEBUG:
        return []
    return [
        Warning(
            "DEBUG must be False where workers run, got True.",
            hint="Set it to False: Django keeps the text of every query that a handler makes, until the "
            "job ends.",
            id="pgjobs.W012",
        )
    ]
