"""A handler's signature: which payloads fit it.

Invariant: a payload is a mapping from argument names to values, so a handler's arguments all have
names, and a payload that does not fit is refused when it is enqueued, not when it runs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter
from typing import Any

from django_pgjobs.exceptions import InvalidOption, InvalidPayload


class Signature:
    """The parameters of one handler, made ready for quick binding."""

    def __init__(self, handler: Callable[..., Any], *, takes_context: bool = False) -> None:
        """Read the signature; the context, which the worker passes, is no part of a payload.

        Raises:
            InvalidOption: a parameter cannot be passed by name, or there is none for the context.

        """
        self._full = inspect.signature(handler)
        self._context = _context_of(handler, self._full) if takes_context else None
        if self._context is not None:
            self._full = self._full.replace(parameters=list(self._full.parameters.values())[1:])
        parameters = self._full.parameters.values()
        for parameter in parameters:
            if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL):
                raise InvalidOption(
                    f"{handler.__qualname__}() must take all its arguments by name, got "
                    f"{parameter}. A payload is stored as names and values."
                )
        self._open = any(p.kind is Parameter.VAR_KEYWORD for p in parameters)
        named = [p for p in parameters if p.kind is not Parameter.VAR_KEYWORD]
        self.names = tuple(p.name for p in named)
        self._names = set(self.names)
        self.defaults = {p.name: p.default for p in named if p.default is not Parameter.empty}
        self._required = {p.name for p in named if p.default is Parameter.empty}

    def bind(self, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload of this call: every argument under its name, defaults left out.

        Raises:
            InvalidPayload: an argument is missing, unknown or given twice.

        """
        if args:
            try:
                bound = self._full.bind_partial(*args, **kwargs).arguments
            except TypeError as error:
                fault = str(error).removeprefix("got ")
                raise InvalidPayload(self._refusal(kind, fault)) from None
            extra = next(
                (p.name for p in self._full.parameters.values() if p.kind is Parameter.VAR_KEYWORD),
                None,
            )
            payload = {name: value for name, value in bound.items() if name != extra}
            payload.update(bound.get(extra, {}) if extra else {})
        elif type(kwargs) is dict or isinstance(kwargs, Mapping):
            payload = dict(kwargs)
            if payload.keys() == self._names:  # as most are
                return payload
        else:  # one of enqueue_many()'s
            raise InvalidPayload(
                self._refusal(kind, f"{type(kwargs).__name__}, which is no mapping")
            )
        if missing := self._required - payload.keys():
            raise InvalidPayload(self._refusal(kind, f"missing {_listed(missing)}"))
        if not self._open and (unknown := payload.keys() - self._names):
            raise InvalidPayload(self._refusal(kind, f"unknown {_listed(unknown)}"))
        if self._context in payload:
            raise InvalidPayload(self._refusal(kind, f"{self._context!r}, which is the context's"))
        return payload

    def check_arguments(self, kind: str, names: Iterable[str]) -> None:
        """Demand that a stored payload with these names, whatever their values, fit.

        Raises:
            InvalidPayload: an argument is missing or unknown.

        """
        Signature.bind(self, kind, (), dict.fromkeys(names))

    def check_names(self, what: str, names: Iterable[str]) -> None:
        """Demand that an option which names arguments names some of this handler's.

        Raises:
            InvalidOption: one of the names is none of them.

        """
        if not self._open and (unknown := set(names) - self._names):
            raise InvalidOption(
                f"{what} must name arguments of {self._full}, got {_listed(unknown)}. Correct the name."
            )

    def _refusal(self, kind: str, fault: str) -> str:
        shown = self._full.replace(return_annotation=inspect.Signature.empty)
        return f"The payload of {kind!r:.100} must fit {kind:.100}{shown}, got: {fault}."


def _context_of(handler: Callable[..., Any], signature: inspect.Signature) -> str:
    """Return the name by which a payload could collide with the context, "" where none can."""
    first = next(iter(signature.parameters.values()), None)
    if first is not None and first.kind is Parameter.POSITIONAL_ONLY:
        return ""
    if first is None or first.kind is not Parameter.POSITIONAL_OR_KEYWORD:
        raise InvalidOption(
            f"takes_context=True needs a handler whose first argument is the context, got "
            f"{handler.__qualname__}{signature}. Add that argument."
        )
    return first.name


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(repr(name) for name in names))
