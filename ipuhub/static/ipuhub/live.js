// Asks for changed parts every 3 s while the page is looked at, every 60 s otherwise.
(() => {
  const ACTIVE = 3000, IDLE = 60000;
  const refresh = () => {
    document.querySelectorAll("[data-live]").forEach((part) => window.htmx.trigger(part, "refresh"));
    schedule();
  };
  let timer;
  const schedule = () => {
    clearTimeout(timer);
    timer = setTimeout(refresh, document.hidden ? IDLE : ACTIVE);
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? schedule() : refresh()));
  schedule();
})();
