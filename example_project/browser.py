"""A customer's browser: it opens pages, keeps cookies and submits forms."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

SECONDS = 30.0
HIDDEN_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="(\w+)"')


@dataclass(frozen=True)
class Page:
    """What the server answered, after redirects."""

    address: str
    status: int
    text: str


class Browser:
    """One customer at one shop."""

    def __init__(self, site: str) -> None:
        """`site` is the address of the shop's first page."""
        self._site = site
        # No proxy: the site is on this machine, whatever the environment says.
        self._opener = build_opener(HTTPCookieProcessor(), ProxyHandler({}))

    def open(self, path: str) -> Page:
        """Get a page."""
        return self._request(urljoin(self._site, path))

    def submit(self, page: Page, to: str = "", **fields: str) -> Page:
        """Fill in the form of a page and send it, with the token that Django hid in it.

        `to` is where the form is sent, by default the page itself.
        """
        if token := HIDDEN_TOKEN.search(page.text):
            fields["csrfmiddlewaretoken"] = token.group(1)
        return self._request(urljoin(page.address, to), urlencode(fields).encode())

    def _request(self, address: str, form: bytes | None = None) -> Page:
        try:
            response = self._opener.open(address, form, SECONDS)
        except HTTPError as refusal:
            response = refusal  # a page too
        with response:
            return Page(response.url, response.status, response.read().decode())
