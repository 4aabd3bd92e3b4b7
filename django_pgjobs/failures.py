"""Turn an exception into the text that a job keeps of it.

Invariant: nothing here raises, whatever the exception does when it is looked at; every text is valid
UTF-8 without NUL and inside its byte limit, holds no local variable, and keeps no object alive.

25 entries stay below 500 kB, so a job's row stays below 1 MB.
"""

from __future__ import annotations

import traceback
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

MESSAGE_BYTES = 2_000
TRACEBACK_BYTES = 16_000
SUMMARY_BYTES = 1_000

_HEAD_FRAMES, _TAIL_FRAMES = 10, 30  # of one exception
_CHAIN = 10  # exceptions of one `__cause__` and `__context__` chain
_GROUP_WIDTH, _GROUP_DEPTH = 3, 2  # exceptions of one group, groups within groups
_NOTES = 5  # of one exception
_MARK_BYTES = 60  # room for the mark that stands for what was cut
_CHUNK = 65_536  # characters measured at once: no second copy of a huge text is made

_CAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
_CONTEXT = "\nDuring handling of the above exception, another exception occurred:\n\n"
_PACKAGE = str(Path(__file__).parent / "_").removesuffix("_")


def entry(exception: BaseException, *, attempt: int, worker: str) -> dict[str, object]:
    """Return what one failed attempt adds to `Job.errors`; the database adds the time."""
    return {
        "attempt": attempt,
        "error": _class_path(exception),
        "message": _safely(_message, exception, MESSAGE_BYTES),
        "traceback": _safely(_traceback, exception, TRACEBACK_BYTES),
        "worker": worker,
    }


def summary(entry: dict[str, object]) -> str:
    """Return the text of `Job.last_error` for an entry: the exception's class and message."""
    return cut(_title(str(entry["error"]), str(entry["message"])), SUMMARY_BYTES)


def cut(text: str, limit: int) -> str:
    """Return text of at most `limit` bytes (over 100) in UTF-8, its head and tail kept around a mark.

    What PostgreSQL cannot store is replaced visibly: NUL by `␀`, a lone surrogate by its escape.
    """
    size = sum(len(_storable(text[at : at + _CHUNK])) for at in range(0, len(text), _CHUNK))
    if size <= limit:
        return _storable(text).decode()
    room = (limit - _MARK_BYTES) // 2
    # "ignore" drops only the character that the cut went through.
    head = _storable(text[:room])[:room].decode(errors="ignore")
    tail = _storable(text[-room:])[-room:].decode(errors="ignore")
    lost = size - len(head.encode()) - len(tail.encode())
    return f"{head}… [{lost:,} bytes cut] …{tail}"


def _storable(text: str) -> bytes:
    return text.replace("\x00", "␀").encode("utf-8", "backslashreplace")


def _safely(describe: Callable[[BaseException], str], exception: BaseException, limit: int) -> str:
    try:
        return cut(describe(exception), limit)
    # The user's code runs here (`__str__` and properties), and may raise even a SystemExit. The
    # attempt's outcome is already known: it must be written, so nothing passes.
    except BaseException as error:  # noqa: BLE001
        return f"<{_class_path(exception)} could not be shown: {_class_path(error)}>"


def _class_path(exception: BaseException) -> str:
    kind = type(exception)
    try:
        return cut(f"{kind.__module__}.{kind.__qualname__}", 500)
    except BaseException:  # noqa: BLE001 - a metaclass may raise anything; type.__repr__ asks it nothing
        return cut(type.__repr__(kind), 500)


def _message(exception: BaseException) -> str:
    text = str(exception)
    # `__str__` may return a subclass of str with methods of its own.
    return text if type(text) is str else str.__str__(text)


def _traceback(exception: BaseException, depth: int = 0) -> str:
    """Render the chain as Python does, the oldest exception first, but only a bounded part of it."""
    text = joint = ""
    seen: set[int] = set()
    link: BaseException | None = exception
    while link is not None and id(link) not in seen:
        if len(seen) == _CHAIN:
            return f"[earlier exceptions are left out]\n{joint}{text}"
        seen.add(id(link))
        text = _single(link, depth) + joint + text
        link, joint = _earlier(link)
    return text


def _earlier(exception: BaseException) -> tuple[BaseException | None, str]:
    if exception.__cause__ is not None:
        return exception.__cause__, _CAUSE
    return None if exception.__suppress_context__ else exception.__context__, _CONTEXT


def _single(exception: BaseException, depth: int) -> str:
    lines = _frames(exception.__traceback__)
    lines.append(_title(_class_path(exception), _safely(_message, exception, MESSAGE_BYTES)) + "\n")
    # Not getattr: it would call a `__getattr__` of the user's.
    notes = vars(exception).get("__notes__")
    if type(notes) is list:
        lines += [cut(note, MESSAGE_BYTES) + "\n" for note in notes[:_NOTES] if type(note) is str]
    if isinstance(exception, BaseExceptionGroup):
        lines += _members(exception.exceptions, depth + 1)
    return "".join(lines)


def _members(exceptions: tuple[BaseException, ...], depth: int) -> Iterator[str]:
    shown = exceptions[:_GROUP_WIDTH] if depth <= _GROUP_DEPTH else ()
    for number, exception in enumerate(shown, start=1):
        yield f"  +---- {number} of {len(exceptions):,} ----\n"
        yield indent(_traceback(exception, depth), "  | ")
    if len(shown) < len(exceptions):
        yield f"  +---- {len(exceptions) - len(shown):,} more are left out ----\n"


def _frames(raised: TracebackType | None) -> list[str]:
    if raised is None:
        return []
    own: TracebackType | None = raised
    # The way through this package is no news to its user, unless the error is the package's own.
    while own is not None and own.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        own = own.tb_next
    own = own or raised
    title = "Traceback (most recent call last):\n"
    count = sum(1 for _ in traceback.walk_tb(own))
    if count <= _HEAD_FRAMES + _TAIL_FRAMES:
        return [title, *traceback.format_tb(own)]
    return [
        title,
        *traceback.format_tb(own, _HEAD_FRAMES),
        f"  … [{count - _HEAD_FRAMES - _TAIL_FRAMES:,} frames cut] …\n",
        *traceback.format_tb(own, -_TAIL_FRAMES),
    ]


def _title(class_path: str, message: str) -> str:
    name = class_path.removeprefix("builtins.")
    return f"{name}: {message}" if message else name
