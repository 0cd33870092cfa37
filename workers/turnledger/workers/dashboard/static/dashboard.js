// Puts fresh figures in place, without losing the page when a server or this one is away for a while.
"use strict";
const figures = document.getElementById("figures");
const freshness = document.getElementById("freshness");
const every = 1000 * Number(figures.dataset.every);
let fetched = Date.now();

function tell() {
  const seconds = Math.round((Date.now() - fetched) / 1000);
  const late = seconds * 1000 > 2.5 * every;
  const why = isBusy() ? "Held while you are in the figures" : "No answer";
  freshness.textContent = late ? `${why}; they are ${seconds} s old` : "";
  document.body.classList.toggle("old", late);
}

function isBusy() {
  const chosen = document.getSelection();
  return figures.contains(document.activeElement) || (chosen && !chosen.isCollapsed && figures.contains(chosen.anchorNode));
}

async function refresh() {
  if (!document.hidden && !isBusy()) {
    try {
      const answer = await fetch(figures.dataset.source, { headers: { Accept: "text/plain" }, redirect: "error" });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.ok) { figures.innerHTML = await answer.text(); fetched = Date.now(); }
    } catch { /* told below */ }
  }
  tell();
  setTimeout(refresh, every);
}

setTimeout(refresh, every);
document.addEventListener("visibilitychange", () => { if (document.hidden) { fetched = Date.now(); } });
