// Runs before the first paint, so that a dark page never flashes white.
(() => {
  const root = document.documentElement;
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const stored = () => { try { return localStorage.getItem("theme"); } catch { return null; } };
  const apply = () => root.setAttribute("data-bs-theme", stored() || (dark.matches ? "dark" : "light"));
  apply();
  dark.addEventListener("change", apply);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-switch]")) return;
    const next = root.getAttribute("data-bs-theme") === "dark" ? "light" : "dark";
    try { localStorage.setItem("theme", next); } catch { /* private mode: for this page only */ }
    root.setAttribute("data-bs-theme", next);
  });
})();
