// Asks for changed parts every 3 s while the page is looked at, every 60 s otherwise; every second
// while a part says by data-soon that it is about to change.
(() => {
  // On a phone navigation and tabs scroll: show the current page.
  document.querySelectorAll(":is(.main-nav, .section-tabs) [aria-current]").forEach((entry) => entry.scrollIntoView({ block: "nearest", inline: "center" }));
  const ACTIVE = 3000, SOON = 1000, IDLE = 60000, MOST_NEWS = 3;
  const refresh = () => {
    document.querySelectorAll("[data-live]").forEach((part) => window.htmx.trigger(part, "refresh"));
    schedule();
  };
  let timer;
  const schedule = () => {
    clearTimeout(timer);
    const active = document.querySelector("[data-live][data-soon]") ? SOON : ACTIVE;
    timer = setTimeout(refresh, document.hidden ? IDLE : active);
  };
  // A part that has not changed is answered with 304 and stays as it is, focus included.
  document.addEventListener("htmx:configRequest", (event) => {
    const { elt, headers, parameters } = event.detail;
    // Filters that are not used stay out of the address.
    if (elt.matches("form.filters")) for (const name of Object.keys(parameters)) if (parameters[name] === "") delete parameters[name];
    if (elt.dataset.live !== undefined && elt.dataset.etag) headers["If-None-Match"] = elt.dataset.etag;
  });
  // Where the focused link was moved or replaced, the focus goes back to it before the next key is read: a
  // job has many links, so the one of that number. A new count is said once.
  let focused = null;
  const linksTo = (href) => [...document.querySelectorAll("[data-live] a")].filter((a) => a.getAttribute("href") === href);
  // What a row says, without ages; rows are known by their first link.
  const words = (row) => {
    const copy = row.cloneNode(true);
    copy.querySelectorAll("time").forEach((time) => time.remove());
    return copy.textContent.replace(/\s+/g, " ");
  };
  const rows = () => new Map([...document.querySelectorAll("[data-live] tbody tr")].flatMap((row) => {
    const link = row.querySelector("a[href]");
    return link ? [[link.getAttribute("href"), row]] : [];
  }));
  // What a toast says of each part that has one; rows are known by their first link, too.
  const toasts = () => new Map([...document.querySelectorAll("[data-toast]")].map((part) => {
    const link = part.matches("tr") ? part.querySelector("a[href]")?.getAttribute("href") : "";
    return [`${link} ${part.dataset.toast}`, part.dataset.toast];
  }));
  let before = new Map(), shown = new Map();
  const tint = (row) => {
    row.classList.remove("is-news");
    void row.offsetWidth; // a row that is tinted already starts anew
    row.classList.add("is-news");
  };
  const toast = (text) => {
    const line = document.getElementById("toast");
    if (!line) return;
    line.textContent = text;
    line.hidden = false;
    clearTimeout(toast.timer);
    toast.timer = setTimeout(() => { line.hidden = true; }, 6000);
  };
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.target.id === "health") return;
    before = new Map([...rows()].map(([key, row]) => [key, words(row)]));
    shown = toasts();
    const here = document.activeElement;
    const href = here?.closest("[data-live]") ? here.getAttribute("href") : null;
    focused = href === null ? null : { href, number: linksTo(href).indexOf(here) };
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id === "health") return;
    if (focused && document.activeElement?.getAttribute("href") !== focused.href) {
      const all = linksTo(focused.href);
      (all[focused.number] ?? all[0])?.focus({ preventScroll: true });
    }
    focused = null;
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.id === "health") return; // the header's line is no news of the page
    // A filter brings other rows; only what came by itself is marked.
    if (before.size && event.detail.requestConfig?.triggeringEvent?.type === "refresh")
      for (const [key, row] of rows()) if (before.get(key) !== words(row)) tint(row);
    const news = shown.size ? [...toasts()].filter(([key]) => !shown.has(key)) : [];
    if (news.length) toast(news.slice(0, MOST_NEWS).map(([, text]) => text).join(" · "));
    const said = document.getElementById("said"), part = document.querySelector("[data-say]");
    if (said && part && said.textContent !== part.dataset.say) said.textContent = part.dataset.say;
  });
  document.addEventListener("htmx:afterSettle", schedule);
  document.addEventListener("visibilitychange", () => (document.hidden ? schedule() : refresh()));
  schedule();
})();
