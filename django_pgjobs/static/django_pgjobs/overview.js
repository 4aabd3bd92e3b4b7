"use strict";
// The chart of the overview, and fresh figures every ten seconds while the page is looked at. Where none come,
// it says so, and of when those are that it shows.
document.addEventListener("DOMContentLoaded", () => {
  const figure = document.querySelector(".pgjobs-chart");
  if (!figure) return;
  const every = 10_000; // milliseconds
  const patience = 8_000;
  const place = figure.querySelector("div");
  const colour = (name) => getComputedStyle(figure).getPropertyValue(name).trim();
  let chart = null;
  let columns = null;

  const language = document.documentElement.lang || undefined;
  const written = (fields) => (seconds) => new Intl.DateTimeFormat(language, fields).format(new Date(1000 * seconds));
  const clock = written({ hour: "numeric", minute: "2-digit" });
  const moment = written({ dateStyle: "short", timeStyle: "short" });
  const exactly = written({ dateStyle: "short", timeStyle: "medium" });
  const zone = new Intl.DateTimeFormat(language, { timeZoneName: "short" }).formatToParts().find((part) => part.type === "timeZoneName").value;
  let shown = exactly(Date.now() / 1000); // the time of the figures
  const number = new Intl.NumberFormat(language);
  const counted = (_, count) => count === null ? "–" : number.format(count);

  const options = () => {
    const axis = { stroke: colour("--body-fg"), grid: { stroke: colour("--hairline-color"), width: 1 }, ticks: { show: false } };
    const bars = uPlot.paths.bars({ size: [0.8, 12] });
    return {
      width: place.clientWidth,
      height: 220,
      axes: [{ ...axis, values: (_, times) => times.map(clock) }, { ...axis, size: 60, values: (_, counts) => counts.map(number.format) }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high, 5)] } },
      series: [
        { label: `${figure.dataset.minute} (${zone})`, value: (_, seconds) => seconds === null ? "–" : moment(seconds) },
        { label: figure.dataset.done, value: counted, stroke: colour("--pgjobs-done"), fill: colour("--pgjobs-done"), paths: bars, points: { show: false } },
        { label: figure.dataset.failed, value: counted, stroke: colour("--pgjobs-failed"), width: 2, points: { show: false } },
      ],
    };
  };
  const draw = () => {
    if (chart) chart.destroy();
    chart = new uPlot(options(), columns, place);
  };
  // The text is left alone while it stays the same: it would be read out each time.
  const note = document.querySelector(".pgjobs-stale");
  const say = (text, isLoggedOut) => {
    const [said, login] = note.children;
    const told = text.replace("{time}", shown);
    if (said.textContent !== told) said.textContent = told;
    login.hidden = !isLoggedOut;
  };
  const refresh = async () => {
    const answer = await fetch(figure.dataset.figures, {
      headers: { Accept: "application/json" },
      redirect: "manual", // to where one logs in, which may be another site
      signal: AbortSignal.timeout(patience),
    });
    if (answer.type === "opaqueredirect" || answer.status === 401 || answer.status === 403) {
      say(note.dataset.out, true);
      return;
    }
    if (!answer.ok) throw new Error(`The figures must come with 200, got ${answer.status}.`);
    const now = await answer.json();
    columns = [now.minutes, now.done, now.failed];
    document.getElementById("pgjobs-cards").innerHTML = now.cards;
    if (chart) chart.setData(columns); else draw();
    shown = exactly(Date.now() / 1000);
    say("", false);
  };
  new ResizeObserver(() => chart && chart.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  // Django's theme switch changes an attribute, the system's a media query.
  new MutationObserver(() => chart && draw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart && draw());
  const look = () => {
    if (!document.hidden) refresh().catch(() => say(note.dataset.away, false)); // the next one may succeed
  };
  look();
  setInterval(look, every);
  document.addEventListener("visibilitychange", look);
});
