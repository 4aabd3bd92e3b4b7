"""A small shop that uses django-pgjobs: what `make demo` and `make serve` run."""
