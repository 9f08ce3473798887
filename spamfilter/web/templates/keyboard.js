// Keys of the review queue, and Enter on a box to tick. Without JavaScript, the same buttons and links work by mouse, Tab and Enter.
"use strict";
const LABELS = { s: "spam", h: "ham", n: "skip" };
const MOVES = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 };

const cards = () => [...document.querySelectorAll("[data-card]")];

document.addEventListener("keydown", (event) => {
  const here = document.activeElement;
  if (event.key === "Enter" && here.matches("input[type=checkbox]")) {
    event.preventDefault();  // or the browser would press the first button of the form
    here.click();
  }
  const all = cards();
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat || here.closest("input, select, textarea")) return;
  if (event.key === "u") document.getElementById("undo")?.click();
  if (!all.length) return;
  const at = all.findIndex((card) => card.contains(here));
  if (event.key in MOVES) {
    event.preventDefault();
    all[Math.min(Math.max(at + MOVES[event.key], 0), all.length - 1)].focus();
  } else if (event.key in LABELS && at >= 0) {
    all[at].querySelector(`button[value="${LABELS[event.key]}"]`).click();
  } else if (event.key === "Enter" && here === all[at]) {
    here.querySelector("a").click();
  }
});
