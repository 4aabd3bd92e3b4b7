"""The `PGJOBS` setting: defaults, ranges, and one place that says what is wrong."""

from __future__ import annotations

import math
from datetime import timedelta

import pytest
from django.core.exceptions import ImproperlyConfigured

from django_pgjobs import conf
from django_pgjobs.worker_options import WorkerOptions

SECONDS = ["LEASE", "HEARTBEAT", "POLL", "SHUTDOWN_TIMEOUT"]
KEEPS = ["KEEP_DONE", "KEEP_FAILED", "KEEP_CANCELLED"]
COUNTS = ["MAX_ATTEMPTS", "MAX_PAYLOAD_BYTES"]

REFUSED = [
    (
        SECONDS,
        [
            0,
            -1,
            0.0009,
            timedelta(milliseconds=9),
            None,
            "60",
            True,
            math.nan,
            math.inf,
            1e12,
            10**400,
            [],
            timedelta(0),
        ],
    ),
    (KEEPS, [-1, "7", True, math.nan, math.inf, -(10**400), {}, timedelta(-1)]),
    (COUNTS, [0, -1, None, 1.0, "5", True, 10**400, timedelta(1)]),
    (["NOTIFY"], [None, 0, 1, "yes"]),
    (["LISTEN_DATABASE"], [True, 0, ["default"]]),
    (["QUEUES"], [None, "mail", ["mail"], {"": {}}, {1: {}}, {"mail": "lease"}]),
    (["QUEUES"], [{"mail": {"claim": value}} for value in (None, "", "leases", True, [])]),
    (["SECRET_KEYS"], [None, 1, b"x", "(", "[a"]),
    (["DRAIN_TOKEN"], ["", "x" * 31, "x " * 32, "ä" * 32, "x" * 32 + "\n", b"x" * 32, 1, True]),
]
ALLOWED = [
    (["LEASE"], [60, 60.5, timedelta(minutes=5)]),
    (["HEARTBEAT", "POLL", "SHUTDOWN_TIMEOUT"], [1, 0.5, 0.01, timedelta(seconds=2)]),
    (KEEPS, [None, 0, 1.5, timedelta(0), timedelta(days=365)]),
    (COUNTS, [1, 32_767]),
    (["NOTIFY"], [True, False]),
    (["LISTEN_DATABASE"], [None, "default", "other"]),
    (["QUEUES"], [{}, {"mail": {}}, {"a": {"claim": "lease"}, "b": {"claim": "transaction"}}]),
    (["SECRET_KEYS"], ["", "x", "(?i)secret"]),
    (["DRAIN_TOKEN"], [None, "x" * 32, "-._~+/=" * 20]),
]


def pairs(table):
    return [(key, value) for keys, values in table for key in keys for value in values]


def test_without_the_setting_every_key_has_the_documented_default():
    assert conf._build({}) == conf.get()
    assert conf.get() == conf.Settings(
        max_attempts=5,
        lease=60,
        heartbeat=15,
        poll=1.0,
        notify=True,
        listen_database=None,
        shutdown_timeout=30,
        max_payload_bytes=100_000,
        keep_done=7 * 86_400,
        keep_failed=30 * 86_400,
        keep_cancelled=30 * 86_400,
    )


@pytest.mark.parametrize(("key", "value"), pairs(REFUSED), ids=lambda v: repr(v)[:20])
def test_a_value_of_the_wrong_type_or_range_is_a_problem_that_names_the_key(key, value):
    [problem] = conf.problems({key: value})

    assert problem.id == "pgjobs.E003"
    assert key in problem.message
    assert problem.hint


@pytest.mark.parametrize(("key", "value"), pairs(ALLOWED), ids=repr)
def test_a_value_in_range_is_no_problem_and_is_used(key, value, settings):
    assert list(conf.problems({key: value})) == []

    settings.PGJOBS = {key: value}
    expected = value.total_seconds() if isinstance(value, timedelta) else value
    assert getattr(conf.get(), key.lower()) == expected


def test_no_problem_and_no_settings_tell_a_token(settings):
    [problem] = conf.problems({"DRAIN_TOKEN": "too-short-a-secret"})
    assert "too-short-a-secret" not in problem.message + problem.hint
    assert "got a text of 18" in problem.message

    settings.PGJOBS = {"DRAIN_TOKEN": "a-secret-" * 4}
    assert "a-secret-" not in repr(conf.get())


@pytest.mark.parametrize("given", [None, [], "x", 5, {"LEASE"}], ids=repr)
def test_a_setting_that_is_no_dict_is_a_problem(given):
    assert [problem.id for problem in conf.problems(given)] == ["pgjobs.E001"]


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("LEASES", "'LEASE'"),
        ("lease", "'LEASE'"),
        ("MAX_ATEMPTS", "'MAX_ATTEMPTS'"),
        ("x", "The keys are"),
        (1, "The keys are"),
    ],
)
def test_an_unknown_key_is_a_problem_that_names_the_nearest_known_one(key, hint):
    [problem] = conf.problems({key: 1})

    assert problem.id == "pgjobs.E002"
    assert repr(key) in problem.message
    assert hint in problem.hint


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"LEASE": 30, "HEARTBEAT": 15}, True),
        ({"LEASE": 30.1, "HEARTBEAT": 15}, False),
        ({"LEASE": 30}, True),
        ({"HEARTBEAT": 30}, True),
        ({"HEARTBEAT": 29}, False),
        ({"HEARTBEAT": 60, "LEASE": timedelta(minutes=1)}, True),
    ],
    ids=repr,
)
def test_a_lease_of_two_heartbeats_or_less_is_a_problem(given, wrong):
    assert [problem.id for problem in conf.problems(given)] == ["pgjobs.E004"] * wrong


def test_every_problem_is_reported_at_once():
    given = {"LEASE": 0, "NONE": 1, "POLL": "x", "KEEP_DONE": -1}

    assert [p.id for p in conf.problems(given)] == ["pgjobs.E003", "pgjobs.E002"] + [
        "pgjobs.E003"
    ] * 2


def test_a_faulty_setting_is_refused_where_it_is_used(settings):
    settings.PGJOBS = {"LEASE": -1}

    with pytest.raises(ImproperlyConfigured, match=r"LEASE.*pgjobs\.E003"):
        conf.get()


def test_a_changed_setting_is_seen(settings):
    settings.PGJOBS = {"MAX_ATTEMPTS": 3}
    assert conf.get().max_attempts == 3

    settings.PGJOBS = {"MAX_ATTEMPTS": 4}
    assert conf.get().max_attempts == 4

    settings.PGJOBS = {}
    assert conf.get().max_attempts == 5


def test_an_unknown_option_of_a_queue_is_refused_with_the_nearest_one():
    [problem] = conf.problems({"QUEUES": {"mail": {"clam": "transaction"}}})

    assert problem.id == "pgjobs.E002"
    assert problem.message == "PGJOBS['QUEUES']['mail'] has an unknown key, 'clam'."
    assert problem.hint == "Did you mean 'claim'?"


def test_where_no_key_is_near_none_is_suggested():
    [problem] = conf.problems({"QUEUES": {"a": {"LIMIT": 3}}})

    assert problem.hint == "The keys are claim, concurrency, rate."


@pytest.mark.parametrize(
    ("options", "by_lease", "by_transaction"),
    [
        ({}, (None, ["b", "c"]), (["b", "c"], ())),
        ({"queues": ["a", "b"]}, (["a"], ()), (["b"], ())),
        ({"queues": ["b"]}, None, (["b"], ())),
        ({"queues": ["a"]}, (["a"], ()), None),
        ({"exclude": ["b", "c"]}, (None, ["b", "c", "b", "c"]), None),
        ({"exclude": ["b"]}, (None, ["b", "b", "c"]), (["c"], ())),
        ({"claim": "lease"}, (None, []), None),
        ({"claim": "transaction", "exclude": ["a"]}, None, (None, ["a"])),
        ({"claim": "transaction", "queues": ["a"]}, None, (["a"], ())),
    ],
    ids=str,
)
def test_each_queue_is_served_in_one_mode(settings, options, by_lease, by_transaction):
    queue = {"claim": "transaction"}
    settings.PGJOBS = {"QUEUES": {"a": {}, "b": queue, "c": queue}}

    chosen = WorkerOptions(database="default", **options)

    assert chosen.by_lease == by_lease
    assert chosen.by_transaction == by_transaction
