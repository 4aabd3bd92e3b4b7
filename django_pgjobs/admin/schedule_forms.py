"""The form of a schedule, and what is wrong with one, in the reader's language.

Invariant: what is saved fires: the form refuses what a tick would. To switch one off nothing of it need be right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext_lazy as _

from django_pgjobs import registry, rules, schedules
from django_pgjobs.exceptions import InvalidOption, InvalidPayload, UnknownKind
from django_pgjobs.models import Schedule

if TYPE_CHECKING:
    from collections.abc import Iterator

    _Form = forms.ModelForm[Schedule]
else:
    _Form = forms.ModelForm

_DEFAULTS = {"payload": {}, "tz": "UTC", "missed": "latest", "enabled": True, "cron": ""}


class PayloadField(forms.JSONField):
    """JSON as typed. Django's own field falls over what its parser or its page cannot take."""

    def to_python(self, value: Any) -> Any:
        """Take nothing at all for no arguments; refuse what Python cannot read."""
        if value in self.empty_values:
            return {}
        try:
            return super().to_python(value)
        except (ValueError, RecursionError) as error:  # too many digits, too many brackets
            raise ValidationError(self.error_messages["invalid"], code="invalid") from error

    def bound_data(self, data: Any, initial: Any) -> Any:
        """Show again what was typed, unread: it may be what cannot be read, or cannot be written."""
        return data if data is None else InvalidJSONInput(data)


class ScheduleForm(_Form):
    """A schedule made by hand."""

    class Meta:
        model = Schedule
        fields = ("name", "kind", "payload", "cron", "tz", "every", "missed", "enabled")
        field_classes = {"payload": PayloadField}  # noqa: RUF012 -- as Django documents it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Offer the kinds that have a handler, and what the database would fill in."""
        super().__init__(*args, **kwargs)
        if "enabled" in self.fields:
            # The form says what it showed: one that is saved late turns no switch back. Who posts
            # without that is compared with the row.
            said = self.add_initial_prefix("enabled") in self.data
            self.fields["enabled"].show_hidden_initial = said or not self.is_bound
        adding = self.instance._state.adding  # noqa: SLF001 -- Django's own API
        if "kind" not in self.fields:  # to be looked at only
            return
        kinds = {*registry.kinds(), *([] if adding else [self.instance.kind])}
        self.fields["kind"] = forms.ChoiceField(
            choices=[(kind, kind) for kind in sorted(kinds)],
            label=self.fields["kind"].label,
        )
        if adding:
            self.initial = {**_DEFAULTS, **self.initial}

    def clean(self) -> dict[str, Any]:
        """Refuse what would not fire, and say why."""
        given = super().clean() or self.cleaned_data
        if not self.errors and "kind" in given and not self._is_switched_off(given):
            for field, message in {
                **dict(rule_faults(**given)),
                **dict(_job_faults(**given)),
            }.items():
                self.add_error(field, message)
        return given

    def _is_switched_off(self, given: dict[str, Any]) -> bool:
        """Say whether it is off, and nothing else is changed."""
        return not given["enabled"] and set(self.changed_data) <= {"enabled"}


def rule_faults(cron: str, tz: str, every: Any, **_others: Any) -> Iterator[tuple[str, Any]]:
    """Yield the field for which a rule would not fire, with what is wrong."""
    try:
        rules.zone(tz)
    except InvalidOption:
        yield "tz", _("There is no such time zone.")
        return
    if bool(cron) == (every is not None):
        yield "cron", _("Give either a cron expression or an interval.")
    elif every is not None:
        try:
            rules.Every(every)
        except InvalidOption:
            yield "every", _("An interval is from 1 second to 366 days.")
    elif not rules.has_cron():
        yield "cron", _("Cron expressions need the package cronsim, which is not installed.")
    else:
        try:
            rules.Cron(cron, tz)
        except InvalidOption:
            yield "cron", _("This is no cron expression that fires some day.")


def _job_faults(kind: str, payload: Any, **_others: Any) -> Iterator[tuple[str, Any]]:
    """Yield the field for which no job could be enqueued, with what is wrong."""
    try:
        if not isinstance(payload, dict):
            yield "payload", _("A payload is a JSON object.")
        else:
            schedules.check(kind, payload)
    except UnknownKind:
        yield "kind", _("No handler is registered for this kind.")
    except InvalidPayload as error:
        text = _("The handler does not take it: %(reason)s")
        yield "payload", ValidationError(text, params={"reason": error})
