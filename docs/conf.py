"""Sphinx configuration."""

from importlib.metadata import version as installed_version

project = "django-pgjobs"
author = "django-pgjobs contributors"
copyright = author
release = version = installed_version("django-pgjobs")

extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
