"""A wrong argument is told in words, before anything is connected."""

from __future__ import annotations

import pytest
from django.core.management import CommandError, call_command

from django_pgjobs.management import arguments


@pytest.mark.parametrize("command", ["runjobs", "reapjobs"])
def test_a_database_that_is_none_is_refused_with_those_there_are(command):
    with pytest.raises(CommandError, match=r"got 'nosuch'. This project has default") as error:
        call_command(command, "--database", "nosuch")

    assert error.value.returncode == 2


@pytest.mark.parametrize(
    ("command", "option", "value"),
    [
        ("runjobs", "--poll", "1e10"),
        ("runjobs", "--poll", "nan"),
        ("runjobs", "--poll", "0"),
        ("runjobs", "--shutdown-timeout", "-1"),
        ("runjobs", "--threads", "1.5"),
        ("runjobs", "--queues", "a b"),
        ("reapjobs", "--interval", "1e11"),
        ("reapjobs", "--older-than", "1e300"),
    ],
)
def test_a_value_out_of_range_is_refused_by_the_name_of_its_option(command, option, value):
    with pytest.raises(CommandError, match=f"{option}: .*must be"):
        call_command(command, option, value)


def test_a_queue_that_is_named_twice_counts_once():
    assert arguments.queues("mail,pdf, mail") == ["mail", "pdf"]
