// A link to an equation, a statement, a term or a reference shows it to a mouse, a keyboard and the first tap of a finger.
// What is shown comes from a script for each page (previews.py), which is loaded when it is asked for.
window.Previews = {}; // page: {anchor: HTML}
(() => {
  const SHOWN = /#(?:(?:equation|term|def|thm|prop|cor|lem|ex|rem|alg|exr)-.+|id\d+)$/; // the same as in previews.py
  const COMING = 150, GOING = 250; // milliseconds: a mouse that passes shows nothing, and may cross over to what it has shown
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const asked = new Map(); // page: a promise of its previews
  let box, link, how, wanted, coming, going, finger = false, quiet = false;

  const linkOf = (element) => {
    const found = element.closest?.("article a.internal");
    return found && SHOWN.test(found.href) && !found.closest(".preview") ? found : null;
  };

  const load = (page) => {
    if (!asked.has(page)) asked.set(page, new Promise((done) => {
      const script = document.createElement("script");
      script.onload = () => done(window.Previews[page] || {});
      script.onerror = () => { asked.delete(page); done({}); };
      script.src = new URL(`_static/previews/${page}.js`, root);
      document.head.append(script);
    }));
    return asked.get(page);
  };

  const close = () => {
    clearTimeout(coming);
    clearTimeout(going);
    box?.remove();
    box = link = wanted = going = undefined;
  };

  // Below the link or above it, where there is more room; within the screen, whatever its size.
  const place = () => {
    if (!box) return;
    const width = document.documentElement.clientWidth, height = innerHeight, line = link.getClientRects()[0];
    if (!line || line.bottom < 0 || line.top > height) return close();
    box.style.maxHeight = "";
    const above = line.top - 14, below = height - line.bottom - 14, up = box.offsetHeight > below && above > below;
    box.style.maxHeight = `${Math.min(box.offsetHeight, up ? above : below)}px`;
    box.style.left = `${Math.max(8, Math.min(line.left, width - box.offsetWidth - 8))}px`;
    box.style.top = `${up ? line.top - box.offsetHeight - 6 : line.bottom + 6}px`;
  };

  // Whether there is something to show.
  const show = async (from, by) => {
    const target = new URL(from.href), anchor = decodeURIComponent(target.hash.slice(1));
    const page = decodeURIComponent(target.pathname.slice(root.pathname.length)).replace(/\.html$/, "");
    wanted = from;
    const html = (await load(page))[anchor];
    if (wanted !== from) return true; // the reader has moved on
    if (!html) return false;
    close();
    [link, wanted, how] = [from, from, by];
    link.removeAttribute("title"); // it would be shown as well
    box = document.createElement("div");
    box.className = "preview";
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", `Preview of ${link.textContent.trim()}`);
    box.innerHTML = `<div>${html}</div><p class="preview-go"><a>Go there</a></p>`;
    box.querySelectorAll("[href]").forEach((each) => { each.href = new URL(each.getAttribute("href"), target); });
    box.querySelectorAll("[src]").forEach((each) => { each.src = new URL(each.getAttribute("src"), target); });
    box.querySelector(".preview-go a").href = link.href;
    link.after(box); // a keyboard and a screen reader come to it next
    box.popover = "manual"; // above everything, and cut off by nothing
    box.showPopover?.();
    place();
    dispatchEvent(new Event("preview")); // for what scrolls sideways
    return true;
  };

  addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const over = linkOf(event.target);
    clearTimeout(coming);
    if (over && over !== link) coming = setTimeout(() => show(over, "mouse"), COMING);
    if (over ? over === link : box?.contains(event.target)) going = clearTimeout(going);
    else if (!box || how === "mouse") going ||= setTimeout(close, over ? 10 * COMING : GOING);
  });

  addEventListener("focusin", (event) => {
    if (quiet || box?.contains(event.target)) return;
    const on = linkOf(event.target);
    if (on && on.matches(":focus-visible") && !finger) show(on, "keyboard");
    else if (how === "keyboard") close();
  });

  addEventListener("keydown", (event) => {
    finger = false;
    if (event.key !== "Escape" || !wanted) return;
    const back = box?.contains(document.activeElement) && link;
    close();
    quiet = true;
    if (back) back.focus();
    quiet = false;
  });

  addEventListener("pointerdown", (event) => { finger = event.pointerType === "touch"; }, true);
  addEventListener("click", (event) => {
    const on = linkOf(event.target);
    if (on && finger && on !== link) {
      event.preventDefault();
      show(on, "finger").then((shown) => { if (!shown) location.assign(on.href); });
    } else if (on || !box?.contains(event.target) || event.target.closest("a")) setTimeout(close); // the link is followed first
  }, true);

  addEventListener("scroll", (event) => { if (!box?.contains(event.target)) place(); }, { capture: true, passive: true });
  addEventListener("resize", place);
})();
