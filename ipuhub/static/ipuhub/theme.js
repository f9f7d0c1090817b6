// Runs before the first paint, so that a dark page never flashes white. Paper is light.
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const printed = window.matchMedia("print");
  const show = (prints) => root.setAttribute("data-bs-theme", prints ? "light" : stored() || (dark.matches ? "dark" : "light"));
  const apply = () => show(printed.matches);
  apply();
  for (const query of [dark, printed]) query.addEventListener("change", apply);
  window.addEventListener("beforeprint", () => show(true));
  window.addEventListener("afterprint", () => show(false));
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    const next = root.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* private mode: for this page only */ }
    root.setAttribute("data-bs-theme", next);
  });
})();
