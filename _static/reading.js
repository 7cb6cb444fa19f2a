// How far the reader has come on a page, as a line at its upper edge; and which pages of the course have been read: those
// whose end has been on the screen. The list is kept in this browser and nowhere else; where it cannot be kept, there is none.
document.addEventListener("DOMContentLoaded", () => {
  const LIST = "mathematics-of-attention-read", SOON = 10_000; // milliseconds: who leafs through a page has not read it
  const root = new URL(document.documentElement.dataset.content_root || "./", location.href);
  const course = (href) => { // the name of a page of the course, if it is one
    const path = new URL(href, location.href).pathname;
    return path.startsWith(root.pathname) ? path.slice(root.pathname.length).match(/^chapters\/(\d\d_\w+\/(?!index)\w+)\.html$/)?.[1] : null;
  };
  const stored = () => {
    try { return new Set(JSON.parse(localStorage.getItem(LIST)) || []); } catch { return new Set(); }
  };
  const store = (pages) => {
    try { localStorage.setItem(LIST, JSON.stringify([...pages])); } catch { /* it stays unknown */ }
  };

  // In the side bar a tick; on the title page how many of each chapter, and of all.
  const pages = new Map([...document.querySelectorAll(".bd-sidebar-primary li > a.internal")].map((link) => [course(link.href), link]));
  pages.delete(undefined);
  pages.delete(null);
  const tell = () => {
    const read = stored();
    pages.forEach((link, page) => link.classList.toggle("is-read", read.has(page)));
    const told = document.querySelector(".pages-read");
    if (!told) return;
    const known = [...pages.keys()].filter((page) => read.has(page));
    told.hidden = !known.length;
    told.querySelector("span").textContent = `You have read ${known.length} of the ${pages.size} pages of the course.`;
    document.querySelectorAll(".chapter-card a[href*='/index.html']").forEach((link) => {
      const of = (list) => list.filter((page) => link.href.includes(`/${page.split("/")[0]}/`)).length;
      const card = link.closest(".sd-card").querySelector(".sd-card-body");
      card.querySelector(".read-here")?.remove();
      if (of(known)) card.insertAdjacentHTML("beforeend", `<p class="read-here">${of(known)} of ${of([...pages.keys()])} pages read</p>`);
    });
  };
  document.querySelector(".pages-read button")?.addEventListener("click", () => { store(new Set()); tell(); });

  const article = document.querySelector("article.bd-article"), here = course(location.href);
  const line = document.createElement("div");
  line.className = "reading-line";
  line.setAttribute("aria-hidden", "true");
  document.body.append(line);
  const look = () => {
    const whole = (article?.getBoundingClientRect().bottom ?? 0) + scrollY - innerHeight;
    const part = whole > 0 ? Math.min(1, scrollY / whole) : 0;
    line.style.transform = `scaleX(${part})`;
    if (!here || whole > scrollY + 2 || performance.now() < SOON || document.hidden || stored().has(here)) return;
    store(stored().add(here));
    tell();
  };
  addEventListener("scroll", look, { passive: true });
  addEventListener("resize", look);
  setTimeout(look, SOON + 100);
  look();
  tell();
});
