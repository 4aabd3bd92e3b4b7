"""What can be measured of a page's looks: its width, the contrast of its texts, the names of its controls.

`PGJOBS_TEST_SCREENSHOTS` is a folder for pictures of what was measured, for a person to look at.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

# Of every text that is seen: its contrast with what is painted behind it, if that is below WCAG's AA.
# What is painted on a canvas or given by the system, such as the arrow of a select, it cannot see.
FAINT_TEXTS = """
() => {
  const rgb = (css) => css.match(/[\\d.]+/g).map(Number);
  const over = (css, below) => {
    const [r, g, b, a = 1] = rgb(css);
    return [r, g, b].map((c, i) => c * a + below[i] * (1 - a));
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    if (!element) return [255, 255, 255];
    const css = getComputedStyle(element).backgroundColor;
    return over(css, (rgb(css)[3] ?? 1) < 1 ? behind(element.parentElement) : [0, 0, 0]);
  };
  const enough = (style) => {
    const size = parseFloat(style.fontSize);
    return size >= 24 || (size >= 18.66 && style.fontWeight >= 700) ? 3 : 4.5;
  };
  const faint = [];
  const judge = (text, element) => {
    const style = getComputedStyle(element);
    const back = behind(element);
    const [a, b] = [light(over(style.color, back)), light(back)];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < enough(style)) faint.push(`${text}: ${contrast.toFixed(2)}`);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode.data.trim();
    const element = texts.currentNode.parentElement;
    if (text && element.checkVisibility()) judge(text, element);
  }
  for (const button of document.querySelectorAll("input[type=submit], input[type=button]")) {
    if (button.checkVisibility()) judge(button.value, button);
  }
  return faint;
}
"""

# The controls that a screen reader could not name.
NAMELESS_CONTROLS = """
() => {
  const said = (element) =>
    element && [element.textContent, ...[...element.querySelectorAll("img")].map((i) => i.alt)];
  const named = (control) => [
    control.ariaLabel,
    control.title,
    control.type === "submit" && control.value,
    ...control.tagName === "SELECT" ? [] : said(control),
    ...[...(control.labels || [])].flatMap(said),
    ...(control.getAttribute("aria-labelledby") || "").split(" ")
      .flatMap((id) => said(document.getElementById(id)) || []),
  ].some((name) => name && name.trim());
  return [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter((control) => control.type !== "hidden" && control.checkVisibility())
    .filter((control) => !named(control))
    .map((control) => control.outerHTML);
}
"""

# The controls that no Tab has led to, once `data-reached` marks those that one has.
UNREACHED_CONTROLS = """
() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
  .filter((control) => control.type !== "hidden" && control.checkVisibility())
  .filter((control) => !control.disabled && !("reached" in control.dataset))
  .map((control) => control.outerHTML)
"""
REACH = """
() => {
  const control = document.activeElement;
  if (control === document.body || "reached" in control.dataset) return false;
  control.dataset.reached = "";
  return true;
}
"""


def keep(page: Page, name: str) -> None:
    """Keep a picture of all of the page, if the environment says where."""
    if folder := os.environ.get("PGJOBS_TEST_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


def unreadable(page: Page, width: int) -> list[str]:
    """What makes a page hard to read: it must be scrolled to the side, or has faint texts or nameless controls."""
    wide = page.evaluate("document.documentElement.scrollWidth")
    faults = [f"{wide} pixels wide"] if wide > width else []
    faults += page.evaluate(FAINT_TEXTS) + page.evaluate(NAMELESS_CONTROLS)
    return [f"{page.url}: {fault}" for fault in faults]


def unreachable(page: Page) -> list[str]:
    """The controls that Tab does not lead to."""
    page.keyboard.press("Tab")
    while page.evaluate(REACH):
        page.keyboard.press("Tab")
    return [f"{page.url}: {control}" for control in page.evaluate(UNREACHED_CONTROLS)]
