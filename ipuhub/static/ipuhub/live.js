// Asks for changed parts every 3 s while the page is looked at, every 60 s otherwise; every second
// while a part says by data-soon that it is about to change.
(() => {
  // On a phone the navigation scrolls: show where one is.
  document.querySelector(".main-nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  const ACTIVE = 3000, SOON = 1000, IDLE = 60000;
  const refresh = () => {
    document.querySelectorAll("[data-live]").forEach((part) => {
      // Somebody choosing text in the part, or typing there, is not disturbed.
      const chosen = document.getSelection();
      if (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) return;
      window.htmx.trigger(part, "refresh");
    });
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
  // Where the part was replaced, the focus goes back to the same link, and a new count is said once.
  let focused = null;
  document.addEventListener("htmx:beforeSwap", () => {
    const here = document.activeElement;
    focused = here && here.closest("[data-live]") ? here.getAttribute("href") : null;
  });
  document.addEventListener("htmx:afterSettle", (event) => {
    if (event.target.id === "health") return; // the header's line is no news of the page
    if (focused) {
      const again = [...document.querySelectorAll("[data-live] a")].find((a) => a.getAttribute("href") === focused);
      if (again) again.focus({ preventScroll: true });
      focused = null;
    }
    const said = document.getElementById("said"), part = document.querySelector("[data-say]");
    if (said && part && said.textContent !== part.dataset.say) said.textContent = part.dataset.say;
  });
  document.addEventListener("htmx:afterSettle", schedule);
  document.addEventListener("visibilitychange", () => (document.hidden ? schedule() : refresh()));
  schedule();
})();
