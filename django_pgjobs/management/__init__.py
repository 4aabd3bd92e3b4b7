"""The commands of `manage.py`, and how their arguments are read."""
