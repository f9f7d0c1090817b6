// Shows instants in UTC, as the server writes them, or in the browser's zone. Exports and prints stay UTC.
(() => {
  const NAME = Intl.DateTimeFormat().resolvedOptions().timeZone || "this browser's zone";
  const printed = window.matchMedia("print");
  const stored = () => { try { return localStorage.getItem("zone") === "local"; } catch { return false; } };
  let chosen = stored(), prints = printed.matches;
  const isLocal = () => chosen && !prints;
  const two = (number) => String(number).padStart(2, "0");
  const inUtc = (at) => at.toISOString().slice(0, 23).replace("T", " ");
  const inZone = (at) => `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${String(at.getMilliseconds()).padStart(3, "0")}`;
  // The same part of the local instant as the words are of the instant in UTC; null: they are an age.
  const localWords = (words, at) => {
    const [, digits, mark] = /^(.*?)( UTC|Z)?$/s.exec(words);
    const from = digits ? inUtc(at).indexOf(digits) : -1;
    return from < 0 ? null : inZone(at).slice(from, from + digits.length) + (mark === " UTC" ? " local time" : "");
  };
  // What the server wrote stays on the element: htmx keeps whole pages for the way back.
  const show = (element) => {
    const at = new Date(element.dateTime ?? element.dataset.at);
    if (Number.isNaN(at.getTime())) return;
    const words = element.dataset.utc ?? element.textContent.trim();
    if (element.dateTime && !element.title) element.title = `${inUtc(at).slice(0, words.includes(".") ? 23 : 19)} UTC`;
    // A mark of an axis may have a day as its words, which is a day of UTC only.
    const local = localWords(words, at) ?? (element.dataset.at ? inZone(at).slice(5, 16) : null);
    if (local === null || (!isLocal() && element.dataset.utc === undefined)) return;
    element.dataset.utc = words;
    element.textContent = isLocal() ? local : words;
  };
  const name = (element) => { element.textContent = isLocal() ? `local time, ${NAME}` : "UTC"; };
  const label = (button) => {
    button.hidden = false;
    button.lastElementChild.textContent = isLocal() ? NAME : "UTC";
    button.title = isLocal() ? `Times are local time, ${NAME}. Switch to UTC` : `Times are UTC. Switch to local time, ${NAME}`;
  };
  const note = (line) => { line.hidden = !isLocal(); };
  const KINDS = [["time[datetime], [data-at]", show], ["[data-zone]", name], ["[data-zone-switch]", label], ["[data-zone-note]", note]];
  const paint = (part) => KINDS.forEach(([selector, act]) => {
    if (part.matches(selector)) act(part);
    part.querySelectorAll(selector).forEach(act);
  });
  const root = document.documentElement;
  const repaint = () => paint(root);
  // Parts that arrive later (polls, filters, lines of a log) are painted before they are seen.
  new MutationObserver((changes) => changes.forEach((change) => change.addedNodes.forEach((node) => { if (node.nodeType === Node.ELEMENT_NODE) paint(node); }))).observe(root, { childList: true, subtree: true });
  document.addEventListener("htmx:afterSwap", (event) => paint(event.target)); // what changed in its place
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-zone-switch]")) return;
    chosen = !chosen;
    try { localStorage.setItem("zone", chosen ? "local" : "utc"); } catch { /* private mode: for this page only */ }
    repaint();
    const said = document.getElementById("said");
    if (said) said.textContent = chosen ? `Times are local time, ${NAME}` : "Times are UTC";
  });
  window.addEventListener("storage", (event) => { if (event.key === "zone" || event.key === null) { chosen = stored(); repaint(); } });
  const print = (on) => { prints = on; repaint(); };
  window.addEventListener("beforeprint", () => print(true));
  window.addEventListener("afterprint", () => print(false));
  printed.addEventListener("change", (event) => print(event.matches));
  repaint();
})();
