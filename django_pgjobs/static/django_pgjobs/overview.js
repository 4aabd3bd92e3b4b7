"use strict";
// The chart of the overview, and fresh figures every ten seconds while the page is looked at.
document.addEventListener("DOMContentLoaded", () => {
  const figure = document.querySelector(".pgjobs-chart");
  if (!figure) return;
  const place = figure.querySelector("div");
  const colour = (name) => getComputedStyle(figure).getPropertyValue(name).trim();
  let chart = null;
  let columns = null;

  const options = () => {
    const axis = { stroke: colour("--body-fg"), grid: { stroke: colour("--hairline-color"), width: 1 }, ticks: { show: false } };
    const bars = uPlot.paths.bars({ size: [0.8, 12] });
    return {
      width: place.clientWidth,
      height: 220,
      axes: [axis, { ...axis, size: 60 }],
      scales: { y: { range: (_, low, high) => [0, Math.max(high, 5)] } },
      series: [
        { label: figure.dataset.minute },
        { label: figure.dataset.done, stroke: colour("--pgjobs-done"), fill: colour("--pgjobs-done"), paths: bars, points: { show: false } },
        { label: figure.dataset.failed, stroke: colour("--pgjobs-failed"), width: 2, points: { show: false } },
      ],
    };
  };
  const draw = () => {
    if (chart) chart.destroy();
    chart = new uPlot(options(), columns, place);
  };
  const refresh = async () => {
    if (document.hidden) return;
    const answer = await fetch(figure.dataset.figures, { headers: { Accept: "application/json" } });
    if (!answer.ok || answer.redirected) return;
    const now = await answer.json();
    columns = [now.minutes, now.done, now.failed];
    document.getElementById("pgjobs-cards").innerHTML = now.cards;
    if (chart) chart.setData(columns); else draw();
  };
  new ResizeObserver(() => chart && chart.setSize({ width: place.clientWidth, height: 220 })).observe(place);
  // Django's theme switch changes an attribute, the system's a media query.
  new MutationObserver(() => chart && draw()).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => chart && draw());
  const quietly = () => refresh().catch(() => {}); // the next one may succeed
  quietly();
  setInterval(quietly, 10_000);
});
