"""The payload of a task whose arguments do not all have names: `{"args": [...], "kwargs": {...}}`.

Invariant: what is enqueued is a call that fits the function; what SQL has stored in another shape is never
called.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from inspect import Parameter
from typing import Any

from django_pgjobs.exceptions import InvalidPayload
from django_pgjobs.signatures import Signature

_BY_POSITION = (Parameter.POSITIONAL_ONLY, Parameter.VAR_POSITIONAL)


class Call:
    """The calls that fit the function of one task."""

    def __init__(self, task: Any) -> None:
        """Read the signature of its function."""
        self._kind = task.module_path
        self._signature = inspect.signature(task.func)
        parameters = list(self._signature.parameters.values())
        self._context = (None,) * bool(task.takes_context)  # which the worker passes
        self._shown = self._signature.replace(
            parameters=parameters[len(self._context) :], return_annotation=inspect.Signature.empty
        )

    @property
    def has_nameless(self) -> bool:
        """Whether the function takes arguments that have no names, beside the context."""
        return any(one.kind in _BY_POSITION for one in self._shown.parameters.values())

    def check(self, payload: Mapping[str, Any]) -> None:
        """Demand that a payload be a call which fits the function, or raise `InvalidPayload`."""
        self.check_shape(payload)
        try:
            self._signature.bind(*self._context, *payload["args"], **payload["kwargs"])
        except TypeError as error:
            raise InvalidPayload(
                f"The call of {self._kind!r:.100} must fit {self._kind:.100}{self._shown}, got: {error}. "
                "Pass what it takes."
            ) from None

    def check_shape(self, payload: Mapping[str, Any]) -> None:
        """Demand that a payload be a call, or raise `InvalidPayload`."""
        if not is_call(payload):
            raise InvalidPayload(
                f"The payload of {self._kind!r:.100} must be {{'args': [...], 'kwargs': {{...}}}}, since not "
                f"all arguments of its function have names, got {payload!r:.80}. Store them so."
            )


class CallSignature(Signature):
    """The signature of such a payload, whose calls fit the function."""

    def __init__(self, call: Call) -> None:
        """Have the two names."""
        super().__init__(spread)
        self._call = call

    def bind(self, kind: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the payload; raise `InvalidPayload` where it is no call that fits, too."""
        payload = super().bind(kind, args, kwargs)
        self._call.check(payload)
        return payload


def is_call(payload: Mapping[str, Any]) -> bool:
    """Say whether a payload is a list and a dict of arguments."""
    return (
        payload.keys() == {"args", "kwargs"}
        and isinstance(payload["args"], list | tuple)
        and isinstance(payload["kwargs"], Mapping)
    )


def spread(args: list[Any], kwargs: dict[str, Any]) -> None:
    """Have the signature of such a payload."""
