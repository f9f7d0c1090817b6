// A line of the queue that is pointed at or focused lights the IPUs of the jobs in its way on the map.
(() => {
  let lit = null;
  const light = (row, again = false) => {
    if (row === lit && !again) return;
    lit = row;
    const uids = row?.dataset.blockers?.split(" ") ?? [];
    for (const link of document.querySelectorAll(".fleet svg a[href]"))
      link.classList.toggle("is-lit", uids.some((uid) => link.getAttribute("href").includes(`/${encodeURIComponent(uid)}/`)));
  };
  const rowOf = (event) => (event.target instanceof Element ? event.target.closest("tr[data-blockers]") : null);
  for (const kind of ["mouseover", "focusin"]) document.addEventListener(kind, (event) => light(rowOf(event)));
  document.addEventListener("focusout", () => light(null));
  document.addEventListener("htmx:afterSettle", () => { if (lit) light(lit.isConnected ? lit : null, true); });
})();
// The map is one stop for Tab; arrows go from IPU to IPU, Home and End to the first and the last.
// The line below it says what is pointed at or focused.
(() => {
  const links = () => [...document.querySelectorAll("[data-map] svg a[href]")];
  const choose = (link) => {
    for (const each of links()) each.setAttribute("tabindex", each === link ? "0" : "-1");
  };
  // The nearest square of the next row, up or down.
  const vertical = (all, from, by) => {
    const box = (link) => link.querySelector(".ipu").getBoundingClientRect();
    const here = box(from), middle = here.x + here.width / 2;
    const away = (one) => (one.y - here.y) * by;
    const boxes = all.map((link) => [link, box(link)]).filter(([, one]) => away(one) > here.height / 2);
    const next = Math.min(...boxes.map(([, one]) => away(one)));
    const row = boxes.filter(([, one]) => away(one) < next + here.height / 2);
    const off = ([, one]) => Math.abs(one.x + one.width / 2 - middle);
    return row.sort((a, b) => off(a) - off(b))[0]?.[0];
  };
  const target = (key, all, from) => {
    const at = all.indexOf(from);
    return { ArrowRight: () => all[at + 1], ArrowLeft: () => all[at - 1], Home: () => all[0], End: () => all.at(-1), ArrowDown: () => vertical(all, from, 1), ArrowUp: () => vertical(all, from, -1) }[key];
  };
  document.addEventListener("keydown", (event) => {
    const from = event.target instanceof Element && event.target.closest("[data-map] svg a[href]");
    if (!from || event.ctrlKey || event.metaKey || event.altKey) return;
    const find = target(event.key, links(), from);
    if (!find) return;
    event.preventDefault();
    find()?.focus();
  });
  const says = (square) => {
    const line = document.querySelector("[data-map-says]");
    const title = square?.querySelector("title")?.textContent;
    if (line && title) line.textContent = title;
  };
  document.addEventListener("focusin", (event) => {
    const link = event.target instanceof Element && event.target.closest("[data-map] svg a[href]");
    if (link) { choose(link); says(link); }
  });
  document.addEventListener("mouseover", (event) => {
    if (event.target instanceof Element) says(event.target.closest("[data-map] svg :is(a, g)"));
  });
  const start = () => {
    const all = links();
    if (all.length && !all.some((link) => link.getAttribute("tabindex") === "0")) choose(all[0]);
    const line = document.querySelector("[data-map-says]");
    // A phone has no Tab key, and room for a few words.
    const hint = matchMedia("(max-width: 575px)").matches ? "Touch an IPU to open its job." : "Point at an IPU, or Tab to the map and use the arrow keys.";
    if (line && !line.textContent) line.textContent = hint;
  };
  document.addEventListener("htmx:afterSettle", start);
  start();
})();
