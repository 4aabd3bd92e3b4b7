"""Benchmarks: django-pgjobs beside a hand-written psycopg queue, on one server, in one run.

`python -m benchmarks --help` says what there is; each scenario is a module of that name.
"""
