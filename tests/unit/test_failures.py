from __future__ import annotations

import gc
import json
import sys
import time
import tracemalloc
import weakref

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from django_pgjobs import failures


def raised(function):
    """The exception of a call, with its traceback."""
    try:
        function()
    except BaseException as exception:  # noqa: BLE001  SystemExit is one of the cases
        return exception
    raise AssertionError(function)


def entry(exception):
    return failures.entry(exception, attempt=2, worker="7")


def size(text):
    return len(text.encode())


def broken_methods(error):
    """An exception class all of whose methods raise."""

    def refuse(*_args):
        raise type(error)(*error.args)  # a new one: this closure must keep no traceback alive

    names = ("__str__", "__repr__", "__getattr__", "__reduce__", "__eq__", "__format__")
    return type("Broken", (Exception,), {**dict.fromkeys(names, refuse), "__module__": "shop.jobs"})


class OddConstructor(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def test_an_entry_tells_what_failed_and_where():
    def charge():
        raise ValueError("no such card")

    failure = entry(raised(charge))
    assert list(failure) == ["attempt", "error", "message", "traceback", "worker"]
    assert (failure["attempt"], failure["worker"]) == (2, "7")
    assert failure["error"] == "builtins.ValueError"
    assert failure["message"] == "no such card"
    assert failure["traceback"].startswith("Traceback (most recent call last):\n  File ")
    assert "in charge\n" in failure["traceback"]
    assert failure["traceback"].endswith("ValueError: no such card\n")
    assert failures.summary(failure) == "ValueError: no such card"


def test_a_class_of_a_project_is_named_with_its_path_everywhere():
    failure = entry(raised(lambda: OddConstructor(1).x))
    assert failure["error"] == "builtins.TypeError"
    failure = entry(OddConstructor("one", "two"))
    path = f"{__name__}.OddConstructor"
    assert failure["error"] == path
    assert failures.summary(failure) == f"{path}: one"
    assert failure["traceback"] == f"{path}: one\n"


@pytest.mark.parametrize(
    ("raising", "summary"),
    [
        (lambda: sys.exit(0), "SystemExit: 0"),
        (lambda: sys.exit("x"), "SystemExit: x"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
        (GeneratorExit(), "GeneratorExit"),
        (SyntaxError("bad", ("f.py", "3", None, 5)), "SyntaxError: bad (f.py)"),
        (SyntaxError(None), "SyntaxError: None"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "odd"), None),
        (OSError(2, None, "\udcff"), None),
        (KeyError(), "KeyError"),
        (BaseException(object), None),
    ],
)
def test_every_kind_of_exception_has_a_summary(raising, summary):
    failure = entry(raised(raising) if callable(raising) else raising)
    json.dumps(failure, ensure_ascii=False).encode()
    if summary:
        assert failures.summary(failure) == summary


@pytest.mark.parametrize(
    "error", [ValueError("x"), SystemExit(0), KeyboardInterrupt(), RecursionError()]
)
def test_an_exception_that_cannot_be_shown_is_told_by_its_class(error):
    broken = broken_methods(error)

    def charge():
        raise broken

    failure = entry(raised(charge))
    assert failure["error"] == "shop.jobs.Broken"
    shown = f"<shop.jobs.Broken could not be shown: builtins.{type(error).__name__}>"
    assert failure["message"] == shown
    assert "in charge\n" in failure["traceback"]
    assert failure["traceback"].endswith(f"shop.jobs.Broken: {shown}\n")


def test_a_str_method_that_returns_no_plain_text_is_survived():
    class Text(str):
        __slots__ = ()

        def __len__(self):
            raise SystemExit

        encode = replace = __len__

    class Odd(Exception):
        text = Text("kept")

        def __str__(self):
            return self.text

    assert entry(Odd())["message"] == "kept"
    Odd.text = None
    assert entry(Odd())["message"].endswith("could not be shown: builtins.TypeError>")


def test_a_class_without_a_usable_name_is_survived():
    class Meta(type):
        def __getattribute__(cls, name):
            raise SystemExit(name)

    Nameless = Meta("Nameless", (Exception,), {})  # noqa: N806
    assert "Nameless" in entry(Nameless("x"))["error"]


def test_traceback_attributes_that_raise_leave_a_fallback():
    class Odd(Exception):
        def __getattribute__(self, name):
            raise ZeroDivisionError

    failure = entry(Odd("x"))
    assert failure["message"] == "x"
    assert failure["traceback"].endswith("Odd could not be shown: builtins.ZeroDivisionError>")


def test_a_huge_message_keeps_its_head_and_tail_around_a_mark():
    message = "head" + "x" * 50_000_000 + "tail"
    failure = entry(raised(lambda: (_ for _ in ()).throw(ValueError(message))))
    text = failure["message"]
    assert size(text) <= failures.MESSAGE_BYTES
    assert text.startswith("headxxx")
    assert text.endswith("xxxtail")
    lost = len(message) - text.count("x") - len("headtail")
    assert f"… [{lost:,} bytes cut] …" in text
    assert size(failure["traceback"]) <= failures.TRACEBACK_BYTES
    assert size(failures.summary(failure)) <= failures.SUMMARY_BYTES
    assert failures.summary(failure).endswith("xxxtail")


def test_a_huge_message_is_not_copied():
    exception = ValueError("é" * 20_000_000)
    tracemalloc.start()
    try:
        entry(exception)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5_000_000


@settings(deadline=None)
@given(
    st.text(
        alphabet=st.one_of(st.characters(), st.sampled_from("\x00\ud800\udfffé😀a")), max_size=600
    ),
    st.integers(100, 300),
)
def test_cut_text_is_storable_and_inside_its_limit(text, limit):
    cut = failures.cut(text, limit)
    assert size(cut) <= limit
    assert "\x00" not in cut
    assert "\ufffd" not in cut or "\ufffd" in text


@pytest.mark.parametrize("character", ["é", "€", "😀", "\x00", "\ud800"])
@pytest.mark.parametrize("shift", range(5))
def test_cutting_never_splits_a_character(character, shift):
    cut = failures.cut("a" * shift + character * 1_000 + "b" * shift, 200)
    head, mark, tail = cut.partition("… [")[0], "…", cut.rpartition("] …")[2]
    assert mark in cut
    if character not in "\x00\ud800":
        assert set(head + tail) <= {"a", "b", character}
    assert size(head) > 60
    assert size(tail) > 60


def test_text_of_exactly_the_limit_is_left_whole():
    assert failures.cut("é" * 500, 1_000) == "é" * 500
    assert "bytes cut" in failures.cut("é" * 500 + "x", 1_000)


def test_nul_and_lone_surrogates_are_replaced_visibly():
    failure = entry(ValueError("a\x00b\ud800c"))
    assert failure["message"] == "a␀b\\ud800c"
    assert failures.summary(failure) == "ValueError: a␀b\\ud800c"
    assert "a␀b\\ud800c" in failure["traceback"]


def recursion(depth):
    """An exception from two functions that call each other: no line repeats its neighbour."""

    def ping(left):
        return pong(left - 1)

    def pong(left):
        if left <= 0:
            raise RecursionError("deepest")
        return ping(left - 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 1_000)
    try:
        return raised(lambda: ping(depth))
    finally:
        sys.setrecursionlimit(limit)


def test_a_deep_traceback_is_cut_cheaply_and_keeps_both_ends():
    exception = recursion(8_000)
    before = time.process_time()
    text = entry(exception)["traceback"]
    assert time.process_time() - before < 1
    assert "in raised\n" in text
    assert "frames cut] …\n" in text
    assert text.endswith("RecursionError: deepest\n")
    assert size(text) <= failures.TRACEBACK_BYTES


@pytest.mark.parametrize("make", [lambda: recursion(8_000), lambda: ValueError("x" * 50_000_000)])
def test_25_entries_stay_far_below_a_megabyte(make):
    assert len(json.dumps([entry(make())] * 25).encode()) < 500_000


def test_no_local_variable_is_shown():
    def charge():
        password = f"hunter-{1 + 1}"
        raise ValueError(len(password))

    assert "hunter-2" not in json.dumps(entry(raised(charge)))


def test_causes_and_contexts_are_shown_oldest_first():
    def charge():
        try:
            try:
                raise KeyError("first")
            except KeyError as error:
                raise OSError("second") from error
        except OSError:
            raise ValueError("third")  # noqa: B904

    text = entry(raised(charge))["traceback"]
    parts = [
        "KeyError: 'first'",
        "direct cause",
        "OSError: second",
        "During handling",
        "ValueError: third",
    ]
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_context_that_was_suppressed_is_not_shown():
    def charge():
        try:
            raise KeyError("secret")
        except KeyError:
            raise ValueError("public") from None

    assert "secret" not in entry(raised(charge))["traceback"]


def test_a_chain_that_bites_its_tail_ends():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    text = entry(first)["traceback"]
    assert text.count("ValueError: first") == text.count("ValueError: second") == 1


def test_a_long_chain_keeps_its_newest_links():
    exception = ValueError("number 0")
    for number in range(1, 5_000):
        later = ValueError(f"number {number}")
        later.__cause__ = exception
        exception = later
    text = entry(exception)["traceback"]
    assert text.startswith("[earlier exceptions are left out]\n")
    assert text.endswith("ValueError: number 4999\n")
    assert text.count("ValueError") == 10


def test_a_huge_group_is_shown_by_its_first_members():
    group = ExceptionGroup("many", [ValueError(n) for n in range(20_000)])
    text = entry(group)["traceback"]
    assert "ExceptionGroup: many (20000 sub-exceptions)" in text
    assert "ValueError: 2\n" in text
    assert "ValueError: 3\n" not in text
    assert "19,997 more are left out" in text


def test_groups_within_groups_end():
    group = ExceptionGroup("leaf", [ValueError("deep")])
    for depth in range(900):
        group = ExceptionGroup(f"level {depth}", [group] * 3)
    text = entry(group)["traceback"]
    assert "level 899" in text
    assert size(text) <= failures.TRACEBACK_BYTES


def test_notes_are_shown_and_odd_notes_ignored():
    exception = ValueError("x")
    exception.add_note("order 7")
    assert entry(exception)["traceback"] == "ValueError: x\norder 7\n"
    exception.__notes__ = [1, object(), "kept"]
    assert entry(exception)["traceback"] == "ValueError: x\nkept\n"
    exception.__notes__ = 5
    assert entry(exception)["traceback"] == "ValueError: x\n"


def call_from(filename, function):
    scope = {"function": function}
    exec(compile("def frame(): function()", filename, "exec"), scope)  # noqa: S102
    return scope["frame"]


def test_the_way_through_the_package_is_left_out():
    def charge():
        raise ValueError("own")

    inside = failures.__file__.replace("failures.py", "execution.py")

    def run():
        call_from(inside, charge)()

    exception = raised(run)
    exception.__traceback__ = exception.__traceback__.tb_next.tb_next  # as the worker catches it
    text = entry(exception)["traceback"]
    assert "execution.py" not in text
    assert "in charge\n" in text


def test_an_error_of_the_package_itself_keeps_its_frames():
    inside = failures.__file__.replace("failures.py", "execution.py")
    scope = {}
    exec(compile("def frame(): 1 / 0", inside, "exec"), scope)  # noqa: S102
    exception = raised(scope["frame"])
    exception.__traceback__ = exception.__traceback__.tb_next
    assert "execution.py" in entry(exception)["traceback"]


def test_a_neighbour_package_with_a_similar_name_is_shown():
    neighbour = failures.__file__.replace("/failures.py", "_extra/jobs.py")
    exception = raised(call_from(neighbour, lambda: 1 / 0))
    exception.__traceback__ = exception.__traceback__.tb_next
    assert "in frame\n" in entry(exception)["traceback"]


@pytest.mark.parametrize("broken", [False, True])
def test_nothing_of_the_exception_is_kept_alive(broken):
    class Holder(broken_methods(ValueError()) if broken else Exception):
        pass

    def charge():
        raise Holder([0] * 1_000)

    exception = raised(charge)
    gc.disable()
    try:
        gone = weakref.ref(exception)
        kept = entry(exception)
        exception.__traceback__ = None
        del exception
        assert gone() is None
    finally:
        gc.enable()
    assert kept["attempt"] == 2
