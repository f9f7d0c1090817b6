// Says what does not answer while an open page cannot be renewed, and how old it is. What it shows stays.
(() => {
  const renewed = new Map(), failing = new Map(); // by the id of the part
  const opened = new Date();
  const isWatched = (part) => part.id && (part.dataset.live !== undefined || part.id === "health");
  // The server's own words are plain text; anything else comes from what stands before it.
  const culprit = (request) => {
    const isOwn = request.getResponseHeader("Content-Type")?.startsWith("text/plain");
    const own = isOwn ? request.responseText.trim().replace(/\.$/, "") : "";
    return own || "The dashboard does not answer";
  };
  const show = () => {
    const bar = document.getElementById("stale"), [status] = bar.getElementsByTagName("strong"), [time] = bar.getElementsByTagName("time"), [age] = bar.getElementsByTagName("span");
    bar.hidden = failing.size === 0;
    const said = bar.hidden ? "" : `${[...failing.values()].at(-1)}.`;
    if (status.textContent !== said) status.textContent = said; // else it would be read out again
    if (bar.hidden) return;
    const parts = [...failing.keys()].filter((id) => id !== "health");
    age.hidden = parts.length === 0; // the rest of the page is not asked again: it is as old as it is
    if (age.hidden) return;
    const oldest = Math.min(...parts.map((id) => renewed.get(id) ?? opened));
    time.dateTime = new Date(oldest).toISOString();
    if (!time.textContent) time.textContent = `${Math.round((Date.now() - oldest) / 1000)} s`;
  };
  const header = (said) => {
    const dot = document.getElementById("health");
    if (!dot) return;
    dot.className = "nav-link health is-down";
    dot.title = said;
    dot.querySelector(".sentence").textContent = said;
  };
  const fails = (part, said) => {
    failing.set(part.id, said);
    header(said);
    show();
  };
  const works = (part) => {
    renewed.set(part.id, new Date());
    const again = failing.delete(part.id) && part.id !== "health";
    if (part.id !== "health") failing.delete("health"); // it is asked again
    if (again && document.getElementById("health")) window.htmx.trigger("#health", "again");
    show();
  };
  document.addEventListener("htmx:afterRequest", ({ detail: { requestConfig: { elt }, xhr } }) => {
    if (!isWatched(elt) || xhr.status === 0) return;
    if (xhr.status >= 500) fails(elt, culprit(xhr));
    else works(elt);
    // What has not changed is read again, too: its age is that of the last answer.
    const at = xhr.getResponseHeader("X-As-Of"), time = document.querySelector("#as-of time");
    if (at && time) { time.dateTime = at; time.title = `${at.slice(0, 19).replace("T", " ")} UTC`; }
  });
  for (const name of ["htmx:sendError", "htmx:timeout"])
    document.addEventListener(name, ({ detail: { requestConfig: { elt }, xhr } }) => {
      if (isWatched(elt)) fails(elt, culprit(xhr));
    });
})();
