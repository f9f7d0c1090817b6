// Keys: / or Ctrl-K searches, g and a letter opens a page, j and k go through the rows, ? shows all.
(() => {
  const typing = (element) => element.matches("input, select, textarea, [contenteditable]");
  const search = () => {
    const box = document.querySelector("header input[type=search]") || document.querySelector("input[type=search]");
    if (box) { box.focus(); box.select(); }
    return Boolean(box);
  };
  const step = (by) => {
    const rows = [...document.querySelectorAll("main tbody tr")].map((row) => row.querySelector("a")).filter(Boolean);
    const next = rows[rows.indexOf(document.activeElement) + by] || (rows.includes(document.activeElement) ? null : rows[0]);
    if (next) next.focus();
  };
  // The menu at the user's name: arrows move in it; Escape, or a click or Tab elsewhere, closes it.
  const menu = document.getElementById("user-menu");
  if (menu) {
    for (const kind of ["click", "focusin"])
      document.addEventListener(kind, (event) => { if (menu.open && !menu.contains(event.target)) menu.open = false; });
    addEventListener("pagehide", () => { menu.open = false; }); // Back shows the page as it was left
    menu.addEventListener("keydown", (event) => {
      const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (event.key === "Escape" && menu.open) {
        menu.open = false;
        menu.querySelector("summary").focus();
      } else if (by) {
        event.preventDefault();
        menu.open = true;
        const items = [...menu.querySelectorAll("div :is(a, button)")];
        const at = items.indexOf(document.activeElement);
        items[at < 0 ? (by > 0 ? 0 : items.length - 1) : (at + by + items.length) % items.length].focus();
      }
    });
  }
  let waits = 0;
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") { if (search()) event.preventDefault(); return; }
    if (event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
    if (Date.now() < waits) {
      waits = 0;
      const link = [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === event.key);
      if (link) { event.preventDefault(); link.click(); return; }
    }
    const dialog = document.getElementById("keys");
    if (event.key === "g") waits = Date.now() + 1500;
    else if (event.key === "/") { if (search()) event.preventDefault(); }
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "?" && dialog) dialog.open ? dialog.close() : dialog.showModal();
  });
})();
