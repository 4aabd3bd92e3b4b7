"""The answers to why a job is not running, in words.

Invariant: an answer's word is the same for ever; its text is in the language that is active when it is read.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.utils import timezone
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

MOST = 1_000  # jobs that are counted before one, and running ones that are looked at

_TEXTS = {
    "gone": _("There is no such job any more."),
    "done": _("It is done, since %(at)s."),
    "failed": _("It was given up at %(at)s, after attempt %(attempt)s: %(error)s"),
    "cancelled": _("It was cancelled at %(at)s."),
    "blocked": _("It has the status blocked, which is reserved: no worker claims it."),
    "running": _("It is running on the worker %(worker)s, since %(at)s."),
    "stopping": _(
        "It is running on the worker %(worker)s, since %(at)s, and was asked to stop at %(asked)s."
    ),
    "lost": _(
        "Its worker %(worker)s is dead or silent. The next worker or reapjobs that looks takes the job back."
    ),
    "delayed": _("It is not due before %(until)s, for attempt %(attempt)s."),
    "table_locked": _(
        "Somebody has locked the tables of jobs, as a migration does. Nothing is claimed before that ends."
    ),
    "paused": _("Its queue, %(queue)s, is paused since %(at)s (by: %(by)s)."),
    "unserved": _("None of the living workers (%(living)s) serves its queue, %(queue)s."),
    "keys_unserved": _(
        "It has a key, %(key)s, and its queue, %(queue)s, is claimed by transaction, where no job with a "
        "key is claimed."
    ),
    "unknown_kind": _(
        "No living worker that serves its queue knows its kind, %(kind)s. Whichever claims it fails it at once."
    ),
    "key_limit": _(
        "As many jobs of its key, %(key)s, run as may: %(running)s of %(limit)s. It is held by: %(held_by)s."
    ),
    "order": _(
        "The jobs of its key, %(key)s, run in order, and job %(job)s before it has not come to its end."
    ),
    "key_rate": _("The rate of its key, %(key)s, allows the next start at %(until)s."),
    "queue_limit": _(
        "As many jobs of its queue, %(queue)s, run as may: %(running)s of %(limit)s. It is held by: %(held_by)s."
    ),
    "queue_rate": _("The rate of its queue, %(queue)s, allows the next start at %(until)s."),
}
ANSWERS = (*_TEXTS, "locked", "next")


@dataclass(frozen=True)
class Explanation:
    """Why a job is not running, or what else is true of it."""

    answer: str  # one of `ANSWERS`
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """A sentence or two, in the language that is active."""
        return self.told(_dated)

    def told(self, dated: Callable[[datetime.datetime], str]) -> str:
        """`text`, with times as `dated` writes them."""
        shown = {
            name: dated(value) if isinstance(value, datetime.datetime) else _shown(value)
            for name, value in self.facts.items()
        }
        if self.answer in _TOLD:
            return " ".join(str(part % shown) for part in _TOLD[self.answer](self.facts))
        return str(_TEXTS[self.answer] % shown)

    def __str__(self) -> str:
        return self.text


_Parts = Iterator[Any]  # texts, with places for the facts


def _locked(facts: Mapping[str, Any]) -> _Parts:
    if facts["process"] is None:
        yield _("A transaction has locked its row; in which process of the server is not known.")
    else:
        yield _(
            "A transaction has locked its row, in the server's process %(process)s since %(at)s."
        )
    if facts["by_transaction"]:
        yield _("It is that of a worker which is running it, or of somebody who is changing it.")
    else:
        yield _("It is that of somebody who is changing it, or enqueues it anew.")


def _next(facts: Mapping[str, Any]) -> _Parts:
    yield _in_line(facts["behind"])
    if facts["first"] is not None:
        yield _("The first of them is job %(first)s.")
    if facts["key"] is not None:
        yield _(
            "The line is that of its key, %(key)s. Keys are served in turn, whatever the priority and the "
            "queue of their jobs."
        )
    yield _served(facts["workers"])
    if facts["unknowing"]:
        yield ngettext(
            "%(unknowing)s of them does not know its kind, and fails it if it claims it.",
            "%(unknowing)s of them do not know its kind, and fail it if they claim it.",
            facts["unknowing"],
        )


# Those that are put together.
_TOLD: dict[str, Callable[[Mapping[str, Any]], _Parts]] = {"locked": _locked, "next": _next}


def _in_line(behind: int) -> str:
    if behind >= MOST:
        return ngettext(
            "It is due, and in line behind %(count)s job or more.",
            "It is due, and in line behind %(count)s jobs or more.",
            behind,
        ) % {"count": f"{behind:,}"}
    if behind:
        return ngettext(
            "It is due, and in line behind %(count)s job.",
            "It is due, and in line behind %(count)s jobs.",
            behind,
        ) % {"count": behind}
    return str(_("It is due, and the next in line."))


def _served(workers: int) -> str:
    return ngettext(
        "%(count)s living worker serves its queue.",
        "%(count)s living workers serve its queue.",
        workers,
    ) % {"count": workers}


def _dated(moment: datetime.datetime) -> str:
    here = timezone.localtime(moment) if timezone.is_aware(moment) else moment
    return f"{here:%Y-%m-%d %H:%M:%S %Z}".rstrip()


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "–" if value is None else str(value)  # noqa: RUF001 -- an en dash stands for nothing
