"""The tables of the reference say what the code says: settings, commands, models, checks, moves."""

from __future__ import annotations

import inspect
import re
from ast import literal_eval
from pathlib import Path

import pytest
from django.core.management import BaseCommand, load_command_class
from django.db.models import NOT_PROVIDED, AutoField, F, Value
from django.db.models.expressions import OrderBy
from django.db.models.functions import Now

import django_pgjobs
from django_pgjobs import (
    conf,
    explanations,
    extensions,
    failures,
    lifecycle,
    payloads,
    statements,
)
from django_pgjobs.doctor import LOOKS, Severity
from django_pgjobs.models import Job, Queue, Schedule, Worker
from tests.contract import pages

COMMANDS = "docs/reference/commands.md"
MODELS = "docs/reference/models.md"
WHY = "docs/how-to/find-out-why.md"
PAYLOADS = "docs/reference/payloads.md"
LIFECYCLE = "docs/explanation/lifecycle.md"
PACKAGE = Path(django_pgjobs.__file__).parent
SOURCES = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}

# ------------------------------------------------------------------------------------- settings

SETTINGS = {row[0]: row[1:] for row in pages.table("docs/reference/settings.md", "Keys")}


def test_every_setting_is_in_the_table_with_its_default():
    defaults = {key: getattr(conf.Settings(), name) for key, name in conf.KEYS.items()}
    assert {key: literal_eval(default) for key, (default, *_) in SETTINGS.items()} == defaults


OTHERS = ("NOTIFY", "LISTEN_DATABASE", "QUEUES", "SECRET_KEYS", "DRAIN_TOKEN")
TIMES_AND_COUNTS = [key for key in SETTINGS if key not in OTHERS]


@pytest.mark.parametrize("key", TIMES_AND_COUNTS)
def test_the_table_gives_the_range_of_a_setting(key):
    given = SETTINGS[key][1]

    def is_valid(value):
        found = {problem.id for problem in conf.problems({key: value})}
        return "pgjobs.E003" not in found

    assert is_valid(None) == ("None" in given)
    if whole := re.fullmatch(r"(\d+) to (\d+)", given):
        least, most = map(int, whole.groups())
        assert [is_valid(n) for n in (least - 1, least, most, most + 1)] == [0, 1, 1, 0]
    else:
        [least] = map(float, re.findall(r"^(0|0\.01) or more seconds", given))
        century = 100 * 365 * 86_400
        values = (least - 0.001, least, century, century + 1)
        assert [is_valid(s) for s in values] == [False, True, True, False]


# ------------------------------------------------------------------------------------- commands


def options(command):
    return {a.option_strings[-1]: a for a in command.create_parser("manage.py", "x")._actions}


@pytest.mark.parametrize("name", ["runjobs", "reapjobs"])
def test_every_option_of_a_command_is_in_its_table(name):
    parsed = options(load_command_class("django_pgjobs", name))
    own = {option: a for option, a in parsed.items() if option not in options(BaseCommand())}
    rows = {row[0]: row[1] for row in pages.table(COMMANDS, name)}
    assert list(rows) == [
        option if action.nargs == 0 else f"{option} {action.metavar or action.dest.upper()}"
        for option, action in own.items()
    ]
    for action, default in zip(own.values(), rows.values(), strict=True):
        assert (default == "off") == (action.nargs == 0)
        assert not default.isdigit() or int(default) == action.default
        if key := re.fullmatch(r'PGJOBS\["(\w+)"\]', default):
            assert action.default in (None, getattr(conf.Settings(), key[1].lower()))


APPS = {"pgjobs": "django_pgjobs", "pgmq": "django_pgjobs.pgmq"}


def verbs(command):
    """The parsers of what a command does, by name."""
    parser = load_command_class(APPS[command], command).create_parser("manage.py", command)
    [verbs] = [action for action in parser._actions if action.dest == "verb"]
    return verbs.choices


def positional(action):
    if action.option_strings or action.dest == "ids":
        return ""
    written = {"?": f" [{action.metavar}]", "*": f" [{action.metavar} ...]"}
    return written.get(action.nargs, f" {action.metavar}")


@pytest.mark.parametrize("command", APPS)
def test_every_verb_of_a_command_is_in_its_table(command):
    names = [
        name + "".join(map(positional, parser._actions)) for name, parser in verbs(command).items()
    ]
    assert [row[0] for row in pages.table(COMMANDS, command)] == names


@pytest.mark.parametrize("command", APPS)
def test_every_option_of_a_verb_is_in_its_table(command):
    of_django = {"help", *(a.dest for a in options(BaseCommand()).values())}
    own = {
        name: [
            a.option_strings[-1]
            for a in parser._actions
            if a.option_strings and a.dest not in of_django
        ]
        for name, parser in verbs(command).items()
    }
    rows = pages.table(COMMANDS, f"Options of {command}")
    assert {row[0]: row[1].split() for row in rows} == own


def test_every_answer_is_in_the_table():
    rows = pages.table(WHY, "Ask a job")
    assert sorted(row[0] for row in rows) == sorted(explanations.ANSWERS)


def test_every_look_of_the_doctor_is_in_the_table():
    rows = pages.table(WHY, "Ask the doctor")
    looks = [*LOOKS] if "consumers" in LOOKS else [*LOOKS, "consumers"]  # of pgmq's app
    assert [row[0] for row in rows if row[0]] == looks
    assert {row[2].partition(" ")[0] for row in rows} <= set(Severity)


def test_every_command_is_described():
    names = {p.stem for p in PACKAGE.rglob("management/commands/[!_]*.py")}
    assert names == set(re.findall(r"^## (\w+)$", pages.text(COMMANDS), re.MULTILINE))


# --------------------------------------------------------------------------------------- models


def described(field):
    length = f"({field.max_length})" if field.max_length else ""
    return [field.name, type(field).__name__ + length, default(field)]


def default(field):
    if field.db_default is NOT_PROVIDED:
        return "NULL" if field.null else "next" if isinstance(field, AutoField) else "none"
    if isinstance(field.db_default, Now):
        return "the statement's time"
    value = field.db_default.value if isinstance(field.db_default, Value) else field.db_default
    return str(value) if value != "" else "empty"


@pytest.mark.parametrize("model", [Job, Worker, Queue, Schedule])
def test_every_column_is_in_the_table_of_its_model(model):
    rows = pages.table(MODELS, model.__name__)
    assert [row[:3] for row in rows] == [described(field) for field in model._meta.fields]
    assert f"Table `{model._meta.db_table}`" in pages.section(MODELS, model.__name__)


def columns(index):
    if not index.expressions:
        return ", ".join(index.fields)
    return ", ".join(map(column, index.expressions))


def column(expression):
    if isinstance(expression, OrderBy):
        return f"{expression.expression.name}{' desc' * expression.descending}"
    assert isinstance(expression, F)
    return expression.name


@pytest.mark.parametrize("model", [Job, Worker])
def test_every_index_is_in_the_table(model):
    rows = pages.table(MODELS, f"Indexes of {model.__name__}")
    there = {index.name: columns(index) for index in model._meta.indexes}
    if model is Job:
        there["pgjobs_job_unique_key"] = "unique_key (unique)"
    assert {row[0]: row[1] for row in rows} == there


def test_every_constraint_of_schedules_is_in_the_table():
    names = {constraint.name for constraint in Schedule._meta.constraints}
    assert {row[0] for row in pages.table(MODELS, "Constraints of Schedule")} == names


def test_every_check_is_in_the_table():
    names = {constraint.name for constraint in Job._meta.constraints}
    rows = pages.table(MODELS, "Constraints of Job")
    assert {row[0] for row in rows} == names - {"pgjobs_job_unique_key"}


# ------------------------------------------------------------------------- checks, life, payloads


def test_every_system_check_is_in_the_table():
    ids = {found for text in SOURCES.values() for found in re.findall(r'"(pgjobs\.\w+)"', text)}
    rows = pages.table("docs/reference/checks.md", "System checks")
    assert [row[0] for row in rows] == sorted(ids)


def test_the_table_of_moves_is_the_code_s():
    rows = pages.table(LIFECYCLE, "Moves")
    assert {row[0]: (row[1], row[2], row[4]) for row in rows} == {
        name: (
            ", ".join(sorted(move.sources)),
            move.target.value,
            ", ".join(sorted(move.columns)),
        )
        for name, move in lifecycle.MOVES.items()
    }


def test_the_chart_is_the_code_s():
    chart = inspect.cleandoc(lifecycle.__doc__).split("\n\n")[1]
    [drawn] = [b.code for b in pages.blocks(LIFECYCLE) if b.language == "text"]
    assert [line.strip() for line in drawn.splitlines()] == [
        line.strip() for line in chart.splitlines()
    ]


def test_every_status_is_described():
    rows = pages.table(LIFECYCLE, "Statuses")
    assert [row[0] for row in rows] == list(lifecycle.Status)


def test_the_glossary_has_every_move():
    words = {row[0] for row in pages.table("docs/reference/glossary.md", "Glossary")}
    assert {re.split("_(by|to)_", name)[0] for name in lifecycle.MOVES} <= words


@pytest.mark.parametrize(
    "fact",
    [
        f"{payloads.MAX_DIGITS:,} digits",
        f"more than {payloads.MAX_DEPTH} deep",
        f"at most {failures.MESSAGE_BYTES:,} bytes",
        f"at most {failures.TRACEBACK_BYTES:,} bytes",
        f"at most {failures.SUMMARY_BYTES:,} bytes",
        f"The latest {statements.MOST_ERRORS} entries",
        *[f"`{name}`" for name in extensions.NAMES],
    ],
)
def test_the_limits_of_payloads_and_errors_are_the_code_s(fact):
    assert fact in pages.text(PAYLOADS)


def test_the_keys_of_an_error_are_in_the_table():
    entry = failures.entry(ValueError(), attempt=1, worker="")
    assert [row[0] for row in pages.table(PAYLOADS, "Errors")] == [*entry, "started_at", "at"]
