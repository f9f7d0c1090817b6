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
