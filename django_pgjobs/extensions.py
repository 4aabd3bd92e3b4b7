"""The closed list of types beyond JSON that a payload may hold, and how each is written and read.

Invariant: what is written can be read back, equal and of the same type, or it is refused. Reading
runs nothing that a row names: a model is looked up among the installed apps only.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils.dateparse import parse_duration
from django.utils.duration import duration_string

from django_pgjobs.refusals import RefusedError, shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from django.db.models import Model

# name: type, to text, and from text (None or an error where it is malformed). datetime before its base.
_EXTENSIONS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "timedelta": (timedelta, duration_string, parse_duration),
    "decimal": (Decimal, Decimal.__str__, Decimal),
    "uuid": (UUID, UUID.__str__, UUID),
}
NAMES = tuple(_EXTENSIONS)


def write(value: Any, kind: type) -> tuple[str, str] | None:
    """Return the name and the text of an extension's value; None where `kind` is no extension."""
    for name, (base, to_text, from_text) in _EXTENSIONS.items():
        if issubclass(kind, base):
            _refuse_ambiguous(value)
            text = to_text(value)
            # Only a subclass is compared: a true datetime may lie in the repeated hour of its zone,
            # and then equals none of another zone (PEP 495).
            if kind is base or from_text(text) == value:
                return name, text
            raise unequal(value, name)
    return None


def read(name: str, text: str) -> object:
    """Return the value of the extension `name` from its text."""
    try:
        value = _EXTENSIONS[name][2](text)
        readable = value is not None and not (name == "decimal" and not value.is_finite())
    except (ValueError, ArithmeticError):
        readable = False
    if readable:
        return value
    raise RefusedError(f"the text of a {name}", shown(text), "Correct the row.")


def refer(instance: Model) -> dict[str, object]:
    """Return what finds a saved instance again."""
    label = instance._meta.label  # noqa: SLF001
    if instance.pk is None or instance._state.adding:  # noqa: SLF001
        raise RefusedError("a saved instance", f"an unsaved {label}", "Save it before the enqueue.")
    database = instance._state.db or DEFAULT_DB_ALIAS  # noqa: SLF001
    return {"label": label, "pk": instance.pk, "database": database}


def load(reference: dict[str, Any]) -> Model:
    """Return the instance that a reference names, as its database has it now."""
    label, pk = reference.get("label"), reference.get("pk")
    alias: Any = reference.get("database")
    try:
        model: type[Model] = apps.get_model(label)  # type: ignore[arg-type]
    except (LookupError, ValueError, AttributeError):
        raise RefusedError(
            "a model of an installed app", shown(label), "Correct the row."
        ) from None
    if alias not in connections:
        raise RefusedError("on a database of DATABASES", shown(alias), "Correct the row.")
    try:
        pk = tuple(pk) if type(pk) is list else pk  # a composite primary key
        return model._base_manager.using(alias).get(pk=pk)  # noqa: SLF001
    except ObjectDoesNotExist:
        advice = "It does not exist any more."
    except (ValueError, TypeError, OverflowError, ValidationError):
        advice = "Correct the row: this is no primary key of that model."
    raise RefusedError(f"an existing {label} on {alias!r}", f"pk {shown(pk)}", advice)


def unequal(value: object, name: str) -> RefusedError:
    """Return the refusal of a subclass's instance that would arrive as something else."""
    advice = f"Its {name} value is not equal to it: pass the value that you mean."
    return RefusedError(f"equal to a plain {name}", shown(value), advice)


def _refuse_ambiguous(value: Any) -> None:
    if isinstance(value, Decimal) and not value.is_finite():
        raise RefusedError("a finite number", shown(value), "Pass None, or text that says it.")
    if not isinstance(value, datetime | time):
        return
    if (offset := value.utcoffset()) is not None:
        if offset.microseconds:  # Python itself does not always read such an offset back
            advice = "Convert it to UTC."
            raise RefusedError("at an offset of whole seconds", shown(value), advice)
        return
    if value.tzinfo is not None:
        advice = "Its zone gives no offset from UTC: pass the zone's name beside it."
        raise RefusedError("a time with an offset", shown(value), advice)
    if isinstance(value, datetime) and settings.USE_TZ:
        raise RefusedError(
            "an aware datetime", shown(value), "Use django.utils.timezone.make_aware()."
        )
