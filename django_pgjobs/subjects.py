"""Name the model instance that a job is about: its model and its primary key, both as text.

Invariant: what is one row has one name. A proxy goes by its concrete model, and a key by the value
that the database knows, whatever it was written as. A model that inherits a table is a model of its
own.
"""

from __future__ import annotations

import json
from typing import Any

from django.core.exceptions import ValidationError

from django_pgjobs.exceptions import InvalidOption
from django_pgjobs.refusals import shown

ID_LENGTH = 200  # characters, as the column


def check(subject: object) -> None:
    """Demand a saved model instance, whose name fits the columns.

    Raises:
        InvalidOption: it is none.

    """
    identify(subject)
    if subject._state.adding:  # type: ignore[attr-defined] # noqa: SLF001 -- Django's own API
        raise InvalidOption(
            f"subject must be a saved model instance, got {shown(subject)}. Save it first."
        )


def identify(subject: object) -> tuple[str, str]:
    """Return the label of the instance's model, as `shop.order`, and its primary key.

    Several columns of a composite key are a JSON array of texts.

    Raises:
        InvalidOption: it is no model instance, has no primary key, or one that is too long or that its
            field cannot hold.

    """
    from django.db.models import Model  # noqa: PLC0415 -- usable before the apps are loaded

    is_instance = isinstance(subject, Model)
    if not is_instance or not subject._is_pk_set():  # type: ignore[attr-defined] # noqa: SLF001
        advice = "Save it first" if is_instance else "Pass the instance itself"
        raise InvalidOption(
            f"subject must be a saved model instance, got {shown(subject)}. {advice}."
        )
    meta: Any = subject._meta.concrete_model._meta  # type: ignore[attr-defined] # noqa: SLF001 -- Django's own API
    parts = [_text(field, subject) for field in meta.pk_fields]
    key = parts[0] if len(parts) == 1 else json.dumps(parts, ensure_ascii=False)
    if len(key) > ID_LENGTH:
        raise InvalidOption(
            f"subject must have a primary key of at most {ID_LENGTH} characters, got {shown(key)}."
        )
    return meta.label_lower, key


def _text(field: Any, subject: object) -> str:
    value = getattr(subject, field.attname)
    try:
        return str(field.to_python(value))
    except ValidationError:
        raise InvalidOption(
            f"subject must have a primary key of its own type, got {shown(value)}. Pass what {field} can hold."
        ) from None
