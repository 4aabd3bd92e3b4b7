"""What staff may do with the messages of a queue of pgmq: redrive and purge, told and recorded.

Invariant: an act takes POST, a permission and a confirmation; it waits for no lock longer than two seconds,
since whoever uses the queue would wait behind it; and it leaves a LogEntry that names the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from django import forms
from django.contrib.admin.models import CHANGE, DELETION
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.formats import localize
from django.utils.translation import gettext, ngettext, pgettext_lazy
from django.utils.translation import gettext_lazy as _

from django_pgjobs.admin.acts import record
from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.pgmq import calls
from django_pgjobs.pgmq.dead_letters import FASTEST, SLOWEST, DeadLetters
from django_pgjobs.pgmq.models import QueueRecord
from django_pgjobs.pgmq.names import LONGEST, check_name
from django_pgjobs.pgmq.queues import Queue
from django_pgjobs.sessions import execute_on_django
from django_pgjobs.windows import WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from django.http import HttpRequest

MOST = WINDOW  # messages that are driven back at once: a statement on a million would hold up consumers


class RedriveForm(forms.Form):
    """Where messages go, and how fast."""

    into = forms.CharField(
        label=_("Into the queue"),
        required=False,
        max_length=LONGEST,
        help_text=_("Empty: each goes back to the queue that it comes from."),
    )
    rate = forms.FloatField(
        label=_("Messages a second"),
        required=False,
        min_value=SLOWEST,
        max_value=FASTEST,
        help_text=_("Empty: all are seen at once."),
    )

    def __init__(self, data: Any, *, alias: str) -> None:
        """Remember the database."""
        super().__init__(data, label_suffix="")
        self._alias = alias

    def clean_into(self) -> str | None:
        """Refuse a queue that is not there."""
        name: str = self.cleaned_data["into"]
        if not name:
            return None
        try:
            is_there = QueueRecord.objects.using(self._alias).filter(pk=check_name(name)).exists()
        except InvalidOption:
            is_there = False
        if not is_there:
            raise ValidationError(gettext("There is no queue of this name."))
        return name


@dataclass(frozen=True)
class MessageAct:
    """One act: its names, and the permission that it takes."""

    name: str
    label: Any  # of the act that is done
    on_selected: Any  # of its buttons
    on_all: Any
    permission: str
    why_not: Any  # of messages that stay
    flag: int = CHANGE

    def allowed(self, request: HttpRequest) -> bool:
        """Say whether the user may do this."""
        user: Any = request.user
        return bool(user.has_perm(f"django_pgjobs_pgmq.{self.permission}"))

    def on(
        self,
        queue: Queue,
        ids: Sequence[int] | None,
        request: HttpRequest,
        *,
        into: str | None = None,
        rate: float | None = None,
    ) -> int:
        """Do it with these messages or, without ids, with all; record it, and return how many."""
        with transaction.atomic(using=queue.alias):
            execute_on_django(queue.alias)(calls.PATIENCE, {})
            if self.name == "redrive":
                letters = DeadLetters(queue.name, queue.using)
                done = len(letters.redrive(ids, into=into, rate=rate, limit=MOST))
            else:
                done = queue.purge() if ids is None else len(queue.delete(ids))
            if done:
                said = {"messages": done, "into": into, "rate": rate}
                noted = urlencode({name: value for name, value in said.items() if value})
                what = QueueRecord(queue_name=queue.name)
                record(request, QueueRecord, [what], f"{self.name} ({noted})", self.flag)
        return done

    def tell(self, done: int, ids: Sequence[int] | None) -> str:
        """Say how many were reached, and why others were not."""
        return " ".join(self._sentences(done, ids))

    def _sentences(self, done: int, ids: Sequence[int] | None) -> Iterator[str]:
        yield ngettext("%(act)s: %(count)s message.", "%(act)s: %(count)s messages.", done) % {
            "act": self.label,
            "count": localize(done),
        }
        if ids is not None and (left := len(ids) - done):
            yield ngettext(
                "%(count)s was skipped: %(reason)s, or locked at this moment.",
                "%(count)s were skipped: %(reason)s, or locked at this moment.",
                left,
            ) % {"count": localize(left), "reason": self.why_not}
        elif self.name == "redrive" and ids is None:
            if done == MOST:
                yield gettext("So many go at once: there may be more.")
            else:
                yield gettext("What comes from no queue that exists has stayed.")


ACTS = {
    act.name: act
    for act in (
        MessageAct(
            "redrive",
            pgettext_lazy("act on messages", "Redrive"),
            _("Redrive selected messages"),
            _("Redrive all messages"),
            "change_queuerecord",
            pgettext_lazy("why a message was skipped", "not there, from no queue that exists"),
        ),
        MessageAct(
            "purge",
            pgettext_lazy("act on messages", "Purge"),
            _("Delete selected messages"),
            _("Delete all messages"),
            "delete_queuerecord",
            pgettext_lazy("why a message was skipped", "not there"),
            DELETION,
        ),
    )
}
