// Keeps the page of an order up to date while its jobs go on, without a reload: fetches the same page
// and replaces those of its parts that have changed.
"use strict";

const EVERY = 1000; // milliseconds
const PATIENCE = 10000;

async function look() {
  const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (!answer.ok) throw new Error(`The order's page must answer 200, got ${answer.status}.`);
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  for (const old of document.querySelectorAll(".live")) {
    const fresh = page.getElementById(old.id);
    // The children: a live region that is itself replaced is not read out.
    if (fresh && !old.isEqualNode(fresh)) old.replaceChildren(...fresh.childNodes);
  }
  return page.querySelector("#reload a") !== null;
}

async function follow() {
  let goesOn = true;
  try {
    if (!document.hidden) goesOn = await look();
  } catch {
    // No answer, or a bad one: what is shown stays, and the next look may find the shop again.
  }
  if (goesOn) setTimeout(follow, EVERY);
}

setTimeout(follow, EVERY);
