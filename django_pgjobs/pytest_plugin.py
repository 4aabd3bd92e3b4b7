"""Fixtures for the tests of projects that use pytest and pytest-django; pytest finds them by itself.

Invariant: Django is imported when a fixture is used, not before, so that any project may have this
package installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_pgjobs.testing import Drained


@pytest.fixture
def pgjobs_drain(db: None) -> Callable[..., Drained]:  # noqa: ARG001 -- pytest-django's, for the database
    """`django_pgjobs.testing.drain`, with the database: call it to run due jobs."""
    from django_pgjobs.testing import drain  # noqa: PLC0415 -- see above

    return drain


@pytest.fixture
def pgjobs_immediate(db: None) -> Iterator[None]:  # noqa: ARG001 -- likewise
    """`django_pgjobs.testing.immediate()` around the test: jobs run as soon as they are committed."""
    from django_pgjobs.testing import immediate  # noqa: PLC0415 -- likewise

    with immediate():
        yield
