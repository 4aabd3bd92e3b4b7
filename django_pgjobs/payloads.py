"""Turn a payload into JSON text for a jsonb column, and that text back into the handler's arguments.

Beside what JSON knows, these round-trip: aware datetime, date, time, timedelta, Decimal, UUID, and
model instances by reference. Each is stored as `{"$type": <name>, "value": <text>}`; a dict that has
a key `$type` of its own is stored as `{"$type": "dict", "value": {...}}`.

Invariant: `decode(encode(payload)) == payload` with equal types, or `encode` raises before any SQL.
These are the documented exceptions, decided here and nowhere else:

- a tuple arrives as a list;
- an instance of a subclass (IntEnum, TextChoices, SafeString, OrderedDict, a float of numpy) arrives
  as the plain value that it equals; where it equals none, it is refused;
- a lazy translation arrives as the text it has when it is encoded;
- a datetime keeps its instant and its offset from UTC, and loses the name of its time zone;
- jsonb itself drops the sign of -0.0, and a float of 1e16 or more arrives as the int that it equals.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from math import isfinite
from typing import Any

from django.db.models import Model
from django.utils.functional import Promise

from django_pgjobs import extensions
from django_pgjobs.exceptions import InvalidPayload
from django_pgjobs.refusals import RefusedError, shown
from django_pgjobs.texts import is_storable

MAX_DEPTH = 128  # containers inside one another: few enough for a caller deep in its own stack
MAX_DIGITS = 4_300  # of an int: Python's default limit for reading one from text

_TAG = "$type"
_INT64 = 2**63
_EXPONENTS = 1e16  # from here on a float's text has one, which numeric reads as another number
_INT_BOUND = 10**MAX_DIGITS
_ATOMS = {str, int, bool, type(None)}  # what is read as it was stored, whatever its value
_SHORT = 1_000  # characters: a huge text is refused before anything is made of it
_LONGEST_CHARACTER = 4  # bytes in UTF-8
_SHOWN_RESULT = 1_000  # characters of a flagged result
_load = json.JSONDecoder().decode
_dump = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode

# The plain value of a subclass's instance, as the base sees it: `str` of an enum may be its name.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__index__,
    float: float.__float__,
    dict: dict,
    list: list,
    tuple: tuple,
}


def encode(payload: Mapping[str, object], *, max_bytes: int) -> str:
    """Return the payload as JSON text that later changes to its values do not reach.

    Raises:
        InvalidPayload: naming the path of what cannot be stored, or for more than `max_bytes` in UTF-8.

    """
    if type(payload) is not dict:
        if not isinstance(payload, Mapping):
            raise _no_payload("a dict", payload, "Pass the arguments by name.")
        payload = dict(payload)
    text = _flat(payload)
    if text is not None and len(text) <= max_bytes // _LONGEST_CHARACTER:
        return text
    return encode_value(payload, max_bytes=max_bytes)


def encode_value(value: object, *, max_bytes: int, root: str = "payload") -> str:
    """Return any value as JSON text, as `encode()` does; `root` is what messages call it.

    Raises:
        InvalidPayload: as above.

    """
    try:
        return _Encoder(max_bytes).encode(value)
    except RefusedError as refused:
        raise InvalidPayload(refused.message(root)) from None


def decode(text: str) -> dict[str, object]:
    """Return the arguments in a payload's JSON text; model instances are loaded from their database.

    Raises:
        InvalidPayload: naming the path of what cannot be read, or whose row does not exist any more.

    """
    payload = decode_value(text)
    if type(payload) is not dict:
        raise _no_payload("a JSON object", payload, "Store the arguments by name.")
    return payload


def decode_value(text: str, *, root: str = "payload") -> Any:
    """Return the value of any such JSON text; `root` is what messages call it.

    Raises:
        InvalidPayload: as above.

    """
    try:
        return _restored(_parsed(text), 0)
    except RefusedError as refused:
        raise InvalidPayload(refused.message(root)) from None


def restored(stored: object) -> object:
    """Return the value that was stored as this, which was read as JSON already.

    Raises:
        InvalidPayload: as `decode()`.

    """
    try:
        return _restored(stored, 0)
    except RefusedError as refused:
        raise InvalidPayload(refused.message("value")) from None


def names_instance(text: str) -> bool:
    """Whether decoding `text`, as PostgreSQL writes it, asks a database for a model instance."""
    return f'"{_TAG}": "model"' in text


def result_text(value: object, *, max_bytes: int) -> tuple[str | None, str | None]:
    """Return a handler's result as JSON text, and why it could not be stored or None; never raise.

    A result that cannot be stored is flagged in its place, as
    `{"$type": "unserializable", "value": {"reason": ..., "repr": <its type or its beginning>}}`.
    NUL is stored as `␀` and a lone surrogate as its escape. None is no result: no text.
    """
    if value is None:
        return None, None
    try:
        return _ResultEncoder(max_bytes).encode(value), None
    except RefusedError as refused:
        reason = _visible(refused.message("result"))
    except KeyboardInterrupt:
        raise
    # The value's own methods may raise anything, even a SystemExit: the job is done all the same.
    except BaseException as error:  # noqa: BLE001
        got, raised = shown(value), shown(error)
        reason = _visible(f"result must be storable as JSON, got {got}. It raised {raised}.")
    flagged = {"reason": reason, "repr": _visible(shown(value, _SHOWN_RESULT))}
    return _dump({_TAG: "unserializable", "value": flagged}), reason


def _flat(payload: dict[str, Any]) -> str | None:
    """Return the text of a payload as most are: of one level, and short. None for any other.

    It takes half as long or less, and leaves to the encoder what is to be refused.
    """
    for name, value in payload.items():
        kind = type(value)
        if not (
            (type(name) is str and len(name) <= _SHORT and name != _TAG)
            and (kind is not str or len(value) <= _SHORT)
            and (kind is not int or -_INT64 <= value < _INT64)
            and kind in _ATOMS
        ):
            return None
    text = _dump(payload)
    return text if is_storable(text) and "\\u0000" not in text else None


class _Encoder:
    """Copies a value into one that the JSON encoder takes without a question."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        # Falls by a lower bound of the bytes to come, so that a huge value, or a small one that shares
        # its parts a billion times, is refused on the way and not when it fills the memory.
        self.left = max_bytes

    def encode(self, value: object) -> str:
        try:
            text = _dump(self.plain(value, 0))
        except RecursionError:
            raise _too_deep(value) from None
        size = len(text) if text.isascii() else len(text.encode())
        if size > self.max_bytes:
            raise self.oversize(f"{size:,}")
        return text

    def plain(self, value: Any, depth: int) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is int:
            return value if -_INT64 <= value < _INT64 else self.big(value)
        if value is None or kind is bool:
            return value
        if kind is dict or kind is list or kind is tuple:
            return self.container(value, depth)
        if kind is float:
            if isfinite(value):
                return value if -_EXPONENTS < value < _EXPONENTS else int(value)
            raise RefusedError("a finite number", repr(value), "Pass None, or text that says it.")
        try:
            return self.other(value, kind, depth)
        except RefusedError:
            raise
        except Exception as error:  # noqa: BLE001 - the value's own methods may raise anything
            advice = f"It raised {shown(error)}: pass plain values."
            raise RefusedError("storable as JSON", shown(value), advice) from None

    def text(self, value: str) -> str:
        self.spend(len(value))
        if not is_storable(value):
            advice = "PostgreSQL cannot store these: remove them, or pass the text in base64."
            raise RefusedError("text without NUL and lone surrogates", shown(value), advice)
        return value

    def big(self, value: int) -> int:
        if -_INT_BOUND < value < _INT_BOUND:
            with suppress(ValueError):  # this process may have a lower limit than Python's default
                self.spend(len(str(value)))
                return value
        raise RefusedError(
            f"an int of at most {MAX_DIGITS:,} digits", shown(value), "Pass it as text."
        )

    def container(self, values: Any, depth: int) -> Any:
        self.spend(len(values))
        if type(values) is not dict:
            return [value for _, value in _members(enumerate(values), self.plain, values, depth)]
        named = zip(map(self.key, values), values.values(), strict=True)
        members = dict(_members(named, self.plain, values, depth))
        return {_TAG: "dict", "value": members} if _TAG in members else members

    def key(self, key: object) -> str:
        try:
            if issubclass(type(key), str):
                return self.text(str.__str__(key))
            raise RefusedError("text", shown(key), "JSON has no other keys: pass str(key).")
        except RefusedError as refused:
            refused.what = refused.what.replace("{path}", "a key of {path}")
            raise

    def other(self, value: Any, kind: type, depth: int) -> Any:
        for base, convert in _PLAIN.items():
            if issubclass(kind, base):
                plain = convert(value)
                stored = self.plain(plain, depth)
                if plain == value:
                    return stored
                raise extensions.unequal(value, base.__name__)
        if written := extensions.write(value, kind):
            name, text = written
            self.spend(len(text))
            return {_TAG: name, "value": text}
        if isinstance(value, Promise):
            return self.plain(str(value), depth)
        if isinstance(value, Model):
            reference = extensions.refer(value)
            return {_TAG: "model", "value": {**reference, "pk": self.plain(reference["pk"], depth)}}
        expected = "a JSON value, date, time, timedelta, Decimal, UUID or model instance"
        raise RefusedError(expected, shown(value), "Pass its id, or its parts.")

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise self.oversize("more")

    def oversize(self, got: str) -> RefusedError:
        expected = f"at most {self.max_bytes:,} bytes of JSON"
        return RefusedError(expected, got, "Store the data elsewhere and pass its id.", "{root}")


class _ResultEncoder(_Encoder):
    """Replaces the characters that PostgreSQL cannot store: what was done is not lost for them."""

    def text(self, value: str) -> str:
        self.spend(len(value))
        return _visible(value)


def _members(
    pairs: Iterable[tuple[Any, Any]],
    convert: Callable[[Any, int], Any],
    container: object,
    depth: int,
) -> Iterator[tuple[Any, Any]]:
    if depth > MAX_DEPTH:
        raise _too_deep(container)
    for key, value in pairs:
        try:
            yield key, convert(value, depth + 1)
        except RefusedError as refused:
            refused.pass_by(key)
            raise


def _parsed(text: str) -> object:
    try:
        return _load(text)
    except (ValueError, RecursionError) as error:
        raise RefusedError(
            "JSON that Python can read", shown(text), f"Correct the row: {error}."
        ) from None


def _restored(stored: Any, depth: int) -> Any:
    if type(stored) is float and not isfinite(stored):
        raise RefusedError("a number that a float can hold", repr(stored), "Store it as text.")
    if type(stored) is list:
        return [value for _, value in _members(enumerate(stored), _restored, stored, depth)]
    if type(stored) is not dict or (
        # As most payloads are: what JSON knows, and one level of it.
        depth <= MAX_DEPTH and _TAG not in stored and _ATOMS.issuperset(map(type, stored.values()))
    ):
        return stored
    if _TAG not in stored:
        return dict(_members(stored.items(), _restored, stored, depth))
    name, value = stored[_TAG], stored.get("value")
    if stored.keys() == {_TAG, "value"} and type(name) is str:
        if name == "dict" and type(value) is dict:
            return dict(_members(value.items(), _restored, value, depth))
        if name == "model" and type(value) is dict:
            return extensions.load({key: _restored(part, depth) for key, part in value.items()})
        if name in extensions.NAMES and type(value) is str:
            return extensions.read(name, value)
    expected = f'{{"$type": one of dict, model, {", ".join(extensions.NAMES)}, "value": ...}}'
    raise RefusedError(expected, shown(name), "Correct the row, or run the version that wrote it.")


def _no_payload(expected: str, got: object, advice: str) -> InvalidPayload:
    return InvalidPayload(RefusedError(expected, shown(got), advice).message("payload"))


def _too_deep(value: object) -> RefusedError:
    expected = f"nested at most {MAX_DEPTH} deep and not contain itself"
    return RefusedError(expected, shown(value), "Flatten it.")


def _visible(text: str) -> str:
    return text.replace("\x00", "␀").encode(errors="backslashreplace").decode()
