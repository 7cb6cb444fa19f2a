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
  document.querySelectorAll("div.highlight pre, div.output pre, div.math")
    .forEach((box) => { if (box.scrollWidth > box.clientWidth) box.setAttribute("tabindex", "0"); });
});

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
