// Buttons that copy a name, a command or a text; hidden where nothing could be copied.
(() => {
  const text = (button) => button.dataset.copy ?? document.getElementById(button.dataset.copyFrom)?.textContent ?? "";
  const show = () => {
    if (!navigator.clipboard) return; // only on HTTPS and on this machine
    document.querySelectorAll("[data-copy], [data-copy-from]").forEach((button) => { button.hidden = false; });
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy], [data-copy-from]");
    if (!button) return;
    const label = button.textContent;
    try {
      await navigator.clipboard.writeText(text(button));
      button.textContent = "Copied";
    } catch { button.textContent = "Not allowed"; }
    setTimeout(() => { button.textContent = label; }, 1500);
  });
  document.addEventListener("htmx:afterSettle", show);
  show();
})();
