"""Every language is whole: it says all that the sources want said, and Django reads what people read."""

from __future__ import annotations

import re
from gettext import GNUTranslations, c2py
from importlib.resources import files

import pytest
from babel.messages.mofile import read_mo

from tests import messages
from tests.messages import forms

PLACEHOLDER = re.compile(r"%\((\w+)\)[sd]")

pytestmark = pytest.mark.parametrize("language", messages.LANGUAGES)


def translations(catalog) -> dict[tuple, tuple[str, ...]]:
    return {
        (message.context, forms(message.id)): forms(message.string)
        for message in catalog
        if message.id
    }


def placeholders(text: str) -> frozenset[str]:
    return frozenset(match[0] for match in PLACEHOLDER.finditer(text))


def test_a_file_has_the_messages_of_the_sources_and_no_others(language):
    text = messages.po(language).read_text(encoding="utf-8")
    assert text == messages.updated(language), "run `make messages`, and translate what it names"


def test_every_message_is_translated_and_none_is_in_doubt(language):
    catalog = messages.read(language)
    assert not [message.id for message in catalog if message.id and message.fuzzy]
    assert not [key for key, strings in translations(catalog).items() if not all(strings)]
    assert not catalog.obsolete


def test_a_translation_has_the_placeholders_of_its_message(language):
    for (_, originals), strings in translations(messages.read(language)).items():
        expected = set(map(placeholders, originals))
        assert set(map(placeholders, strings)) <= expected, originals
        if any(expected):
            for string in strings:
                assert string % dict.fromkeys(PLACEHOLDER.findall(string), 1), originals


def test_plurals_have_all_forms_of_the_language(language):
    catalog = messages.read(language)
    plurals = {key: s for key, s in translations(catalog).items() if len(key[1]) > 1}
    assert plurals
    assert {len(strings) for strings in plurals.values()} == {catalog.num_plurals}


def test_what_django_reads_is_what_people_read(language):
    written = messages.read(language)
    with messages.po(language).with_suffix(".mo").open("rb") as file:
        compiled = read_mo(file)
        file.seek(0)
        plural = GNUTranslations(file).plural
    assert translations(compiled) == translations(written), "run `make messages`"
    numbers = (0, 1, 2, 21, 1_000_000)
    assert list(map(plural, numbers)) == list(map(c2py(written.plural_expr), numbers))


def test_what_the_admin_has_a_word_for_is_called_by_it(language):
    path = files("django.contrib.admin") / f"locale/{language}/LC_MESSAGES/django.mo"
    with path.open("rb") as file:
        theirs = translations(read_mo(file))
    ours = translations(messages.read(language))
    shared = ours.keys() & theirs.keys()
    assert (None, ("Delete",)) in shared
    assert {key: ours[key] for key in shared} == {key: theirs[key] for key in shared}
