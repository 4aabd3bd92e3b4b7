"""One is one."""

from __future__ import annotations

import pytest

from django_pgjobs.plurals import counted


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 due jobs"), (1, "1 due job"), (2, "2 due jobs"), (1_200, "1,200 due jobs")],
)
def test_a_number_of_things_is_said_in_the_singular_where_it_is_one(number, said):
    assert counted(number, "due job") == said
