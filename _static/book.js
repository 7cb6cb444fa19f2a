// Small repairs of the theme for those who use a screen reader: visible text and accessible name must agree, every part of
// the page lies in a landmark, and what scrolls can be reached by the keyboard.
document.addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".search-button-field[aria-label], .theme-switch-button[aria-label]")
    .forEach((button) => button.removeAttribute("aria-label"));
  const bar = document.querySelector(".bd-sidebar-primary");
  if (bar) { bar.setAttribute("role", "navigation"); bar.setAttribute("aria-label", "Book"); }
  document.querySelectorAll("li.has-children > details > summary").forEach((toggle) => {
    const chapter = toggle.closest("li").querySelector("a");
    if (chapter) toggle.setAttribute("aria-label", "Sections of " + chapter.textContent.trim());
  });
});

// What scrolls sideways can be reached by the keyboard, and says to a screen reader what it is. The theme sees to
// code when the page opens or changes its size, not when a tab shows it; it does not see formulas at all.
const SIDEWAYS = { "mjx-container[display='true'], div.math": "formula", ".pst-scrollable-table-container, table.docutils, table.indextable, .cell_output .text_html": "table" };
const reachable = () => {
  const boxes = Object.entries(SIDEWAYS).flatMap(([selector, what]) => [...document.querySelectorAll(selector)].map((box) => ({ box, what })));
  boxes.forEach((one) => { one.scrolls = one.box.scrollWidth > one.box.clientWidth && getComputedStyle(one.box).overflowX === "auto"; });
  boxes.forEach(({ box, what, scrolls }) => { // all is measured by now: writing does not lay the page out again and again
    if (scrolls === box.hasAttribute("data-sideways")) return;
    box.toggleAttribute("data-sideways", scrolls);
    if (!scrolls) { ["tabindex", "role", "aria-label"].forEach((name) => box.removeAttribute(name)); return; }
    box.setAttribute("tabindex", "0");
    if (box.tagName !== "TABLE") { box.setAttribute("role", "group"); box.setAttribute("aria-label", `Wide ${what}, scrolls sideways`); }
  });
  const code = [...document.querySelectorAll("pre[tabindex='-1'], .output[tabindex='-1']")].filter((box) => box.scrollWidth > box.clientWidth);
  code.forEach((box) => { box.tabIndex = 0; });
};
let waiting;
const reachableSoon = () => { clearTimeout(waiting); waiting = setTimeout(reachable, 200); };
addEventListener("load", () => {
  reachable();
  document.fonts?.addEventListener("loadingdone", reachableSoon); // a formula is wider once its letters have come
});
addEventListener("resize", reachableSoon);
addEventListener("preview", reachable); // of a formula, beside a link to it
addEventListener("toggle", reachableSoon, true); // a fold opens
// An arrow moves what has the focus and scrolls; only elsewhere does it turn the page, which Sphinx listens for on the document.
document.addEventListener("DOMContentLoaded", () => document.body.addEventListener("keydown", (event) => {
  const box = event.target;
  if (/^Arrow(Left|Right)$/.test(event.key) && box.tabIndex === 0 && box.scrollWidth > box.clientWidth + 1) event.stopPropagation();
}));
addEventListener("change", reachableSoon); // a tab is chosen

// A link into a closed fold opens it, and so does the printer.
const unfold = (element) => {
  for (let fold = element; fold; fold = fold.parentElement?.closest("details")) if (fold.tagName === "DETAILS") fold.open = true;
};
const arrive = () => {
  const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.closest("details:not([open])")) { unfold(target.closest("details")); target.scrollIntoView(); }
};
addEventListener("DOMContentLoaded", arrive);
addEventListener("hashchange", arrive);
addEventListener("click", (event) => { if (event.target.closest?.("a[href*='#']")) setTimeout(arrive); });
addEventListener("beforeprint", () => document.querySelectorAll("details.deeper").forEach((fold) => { fold.open = true; }));
