"""The translations: bring each `django.po` up to what the sources say, and compile it: `make messages`.

Django's own makemessages needs GNU gettext on the machine; Babel, with what Django makes of a template
before it calls xgettext, needs nothing.
"""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from babel.messages import Catalog
from babel.messages.extract import extract
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po
from django.utils.translation.template import templatize

PACKAGE = Path(__file__).parents[1] / "django_pgjobs"
LOCALE = PACKAGE / "locale"
LANGUAGES = sorted(path.name for path in LOCALE.iterdir())

_SINGULAR, _PLURAL = (1,), (1, 2)
_IN_CONTEXT, _PLURAL_IN_CONTEXT = ((1, "c"), 2), ((1, "c"), 2, 3)
KEYWORDS = {
    "_": _SINGULAR,
    **dict.fromkeys(("gettext", "gettext_lazy", "gettext_noop"), _SINGULAR),
    **dict.fromkeys(("ngettext", "ngettext_lazy"), _PLURAL),
    **dict.fromkeys(("pgettext", "pgettext_lazy"), _IN_CONTEXT),
    **dict.fromkeys(("npgettext", "npgettext_lazy"), _PLURAL_IN_CONTEXT),
}
# A file is the same however often it is made.
_NO_DATE = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def po(language: str) -> Path:
    return LOCALE / language / "LC_MESSAGES" / "django.po"


def forms(string: str | list[str] | tuple[str, ...]) -> tuple[str, ...]:
    """Return the plural forms of a message, or the only one."""
    return (string,) if isinstance(string, str) else tuple(string)


def _sources() -> Iterator[tuple[str, str]]:
    """Yield the name and the Python, or what looks enough like it, of every file with messages."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
    for path in sorted((PACKAGE / "templates").rglob("*.html")):
        # In parentheses indentation means nothing.
        yield (
            path.relative_to(PACKAGE).as_posix(),
            f"({templatize(path.read_text(encoding='utf-8'))}\n)",
        )


def extracted() -> Catalog:
    """Return all that the sources want translated."""
    found = Catalog()
    for name, python in _sources():
        for line, text, _comments, context in extract("python", BytesIO(python.encode()), KEYWORDS):
            found.add(text, locations=[(name, line)], context=context)
    return found


def read(language: str) -> Catalog:
    """Return what the file of a language says."""
    with po(language).open("rb") as file:
        return read_po(file, locale=language)


def updated(language: str) -> str:
    """Return the text that the file should have: every message of the sources, and no other."""
    catalog = read(language)
    catalog.update(extracted(), no_fuzzy_matching=True)
    body = BytesIO()
    write_po(body, catalog, width=0, omit_header=True, ignore_obsolete=True, include_lineno=False)
    header = po(language).read_text(encoding="utf-8").partition("\n\n")[0]
    return f"{header}\n\n{body.getvalue().decode().strip()}\n"


def compiled(language: str) -> bytes:
    """Return what Django reads, made of what people read."""
    catalog = read(language)
    catalog.creation_date = catalog.revision_date = _NO_DATE
    mo = BytesIO()
    write_mo(mo, catalog)
    return mo.getvalue()


def main() -> int:
    """Update and compile every language; say what is left to a translator."""
    left = 0
    for language in LANGUAGES:
        po(language).write_text(updated(language), encoding="utf-8")
        po(language).with_suffix(".mo").write_bytes(compiled(language))
        for message in read(language):
            if message.id and (message.fuzzy or not all(forms(message.string))):
                left += 1
                print(f"{po(language)}:{message.lineno}: translate {message.id!r}")
    return min(left, 1)


if __name__ == "__main__":
    sys.exit(main())
