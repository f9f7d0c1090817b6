// hx-swap="morph" changes a part in place, so that what is open, chosen, focused or scrolled stays.
(() => {
  // Rows of a table are known by their first link: a new row at the top moves the others and rewrites none.
  const nameRows = (root) => {
    const seen = new Set();
    root.querySelectorAll("table").forEach((table, number) => table.querySelectorAll("tbody tr").forEach((row) => {
      const link = row.querySelector("a[href]");
      const id = link && `row-${number}-${link.getAttribute("href")}`;
      if (!id || seen.has(id)) row.removeAttribute("id");
      else { row.id = id; seen.add(id); }
    }));
  };
  const isElement = (node) => node.nodeType === Node.ELEMENT_NODE;
  // ages.js and zone.js write the words of a time, from an instant that is the same.
  const isSameTime = (old, next) => old.matches("time") && next.matches("time") && old.dateTime === next.dateTime && (old.hasAttribute("data-age") || old.dataset.utc === next.textContent.trim());
  const isTicked = (old) => old.matches("details[open] input[type=checkbox]");
  const isSaid = (old) => old.matches("[data-map-says]"); // by map.js, as tabindex on the map
  const callbacks = {
    beforeNodeMorphed: (old, next) => !(isElement(old) && isElement(next) && (isSameTime(old, next) || isTicked(old) || isSaid(old))),
    // The server opens nothing, and copy.js shows the buttons that can copy.
    beforeAttributeUpdated: (name, node) => !((name === "open" && node.matches("details")) || (name === "hidden" && node.matches("[data-copy], [data-copy-from]")) || (name === "tabindex" && node.matches("[data-map] svg a"))),
  };
  window.htmx.defineExtension("morph", {
    isInlineSwap: (style) => style === "morph",
    handleSwap: (style, target, fragment) => {
      if (style !== "morph") return false;
      nameRows(target);
      nameRows(fragment);
      return window.Idiomorph.morph(target, fragment.children, { morphStyle: "outerHTML", ignoreActiveValue: true, callbacks });
    },
  });
})();
