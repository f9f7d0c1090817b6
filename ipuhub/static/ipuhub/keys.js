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
