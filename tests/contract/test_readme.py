"""The README is short, and a reader who does what it says gets a receipt."""

from __future__ import annotations

import re
import tomllib
from textwrap import indent

import django
import pytest

from tests.contract import pages
from tests.contract.projects import SETTINGS, new_project

pytestmark = pytest.mark.newest

README = "README.md"
MODELS = """
from django.db import models


class Order(models.Model):
    email = models.EmailField()
    total = models.DecimalField(max_digits=8, decimal_places=2)
"""
MAIL = """
INSTALLED_APPS += ["shop"]
MAILERS = {"default": {
    "BACKEND": "django.core.mail.backends.filebased.EmailBackend",
    "OPTIONS": {"file_path": str(BASE_DIR / "sent")},
}}
"""
MAIL_BEFORE_MAILERS = """
INSTALLED_APPS += ["shop"]
EMAIL_BACKEND = "django.core.mail.backends.filebased.EmailBackend"
EMAIL_FILE_PATH = str(BASE_DIR / "sent")
"""
VIEW = """
from django.db import transaction
from django.http import HttpResponse
from shop.jobs import send_receipt
from shop.models import Order


def checkout(request):
{}
    return HttpResponse()
"""
URLS = """
from shop.views import checkout

urlpatterns += [path("checkout/", checkout)]
"""
ORDER = """
from django.test import Client

assert Client(SERVER_NAME="localhost").post("/checkout/").status_code == 200
"""
TESTS = """
from django.core import mail
from django.test import TestCase

{block}

class Readme(TestCase):
    {name} = {name}
"""
USE = """
from shop.jobs import send_receipt

{}
assert Job.objects.cancelled().count() == 1
assert Job.objects.pending().count() == 1_003
"""


def block(beginning):
    [found] = [b for b in pages.blocks(README) if b.code.startswith(beginning)]
    return found.code


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """What the README takes for granted, a project with an app, and then its steps."""
    with new_project(tmp_path_factory.mktemp("readme")) as project:
        project.python("-m", "django", "startproject", "mysite", ".")
        project.manage("startapp", "shop")
        project.write("shop/models.py", MODELS)
        mail = MAIL if django.VERSION >= (6, 1) else MAIL_BEFORE_MAILERS
        project.write(SETTINGS, mail, append=True)
        project.write(SETTINGS, block("INSTALLED_APPS"), append=True)
        project.write("shop/jobs.py", block("# shop/jobs.py"))
        project.write("shop/views.py", VIEW.format(indent(block("# shop/views.py"), "    ")))
        project.write("mysite/urls.py", URLS, append=True)
        project.manage("makemigrations", "-v0", "shop")
        yield project


def test_the_steps_of_the_readme_bring_a_receipt(project):
    commands = re.findall(r"`(python manage\.py \w+)`", pages.section(README, "Install"))
    assert [c.split()[-1] for c in commands] == ["migrate", "runjobs", "reapjobs"]
    project.command(commands[0])
    project.manage("shell", "-c", ORDER)
    sent = project.folder / "sent"
    assert not sent.exists()
    project.command(f"{commands[1]} --drain")
    [receipt] = [path.read_text() for path in sent.iterdir()]
    assert "To: ada@example.com" in receipt
    assert "Order 1: 9.90" in receipt
    project.command(commands[2])


def test_a_reader_who_forgets_the_tables_is_told(tmp_path):
    with new_project(tmp_path) as project:
        project.python("-m", "django", "startproject", "mysite", ".")
        project.write(SETTINGS, block("INSTALLED_APPS"), append=True)
        for command in ("runjobs", "reapjobs"):
            told = project.python("manage.py", command, status=1)
            assert "CommandError: Run manage.py migrate first" in told


def test_the_ways_to_use_it_do_what_they_say(project):
    project.manage("migrate", "-v0")
    project.flush()
    project.manage("shell", "-c", USE.format(block("from django_pgjobs import Job")))


def test_the_test_in_the_readme_passes(project):
    code = block("from django_pgjobs.testing")
    [name] = re.findall(r"def (\w+)\(self\)", code)
    project.write("shop/tests.py", TESTS.format(block=code, name=name))
    assert "Ran 1 test" in project.manage("test")


def test_what_the_readme_installs_and_makes_exists():
    project = tomllib.loads(pages.text("pyproject.toml"))["project"]
    name, extra = re.search(r'pip install "([\w-]+)\[(\w+)\]"', pages.text(README)).groups()
    assert name == project["name"]
    assert extra in project["optional-dependencies"]
    targets = re.findall(r"^make (\w+)", pages.text(README), re.MULTILINE)
    assert targets
    assert all(f"\n{target}:" in pages.text("Makefile") for target in targets)


def test_the_readme_is_short():
    assert len(pages.text(README).splitlines()) <= 120
