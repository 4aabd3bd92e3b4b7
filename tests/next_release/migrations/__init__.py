"""This release's migrations, and one more."""

from __future__ import annotations

from django_pgjobs import migrations as this_release

__path__ = [*__path__, *this_release.__path__]  # type: ignore[name-defined]
