// Draws the bars of a month as SVG, from the numbers behind data-chart, in the colours and patterns of the stylesheet.
// The legend is HTML: it shows the month, and under the pointer a day. Names only ever become text, never HTML.
(() => {
  const BAR = 28, TEXT = 12, FOOT = 22, PAPER = { width: 1000, height: 192 };
  const places = (value, most, least = most) => value.toLocaleString("en", { maximumFractionDigits: most, minimumFractionDigits: least });
  // As many decimals as the step has: all marks of an axis in one precision.
  const tick = (value, step) => places(value, Math.max(0, Math.ceil(-Math.log10(step))));
  // As the table below (the template filter `in_column`), so that both say the same.
  const amount = (value) => value > 0 && value < 0.005 ? "< 0.01" : places(value, 2);
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const short = (day) => (day.length === 10 ? String(Number(day.slice(8))) : /^\d/.test(day) ? day.slice(5) : day);

  const drawing = (name, given) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(given)) element.setAttribute(key, value);
    return element;
  };
  // A colour belongs to the name, as on the fleet map: the server says which class of the stylesheet it is.
  const key = (series) => {
    const mark = drawing("svg", { class: "key", viewBox: "0 0 14 14", "aria-hidden": "true" });
    const box = { width: 14, height: 14, rx: 3 };
    const [css, decals] = series.paint ?? ["", []];
    const fill = drawing("rect", { ...box, class: css });
    mark.append(fill, ...decals.map((decal) => drawing("rect", { ...box, fill: `url(#${decal})` })));
    return mark;
  };
  // The height of one grid line above the other: 1, 2 or 5 times a power of ten, four to eight lines.
  const stepOf = (most) => {
    const power = 10 ** Math.floor(Math.log10(most / 4));
    return [5, 2, 1].map((each) => each * power).find((each) => each <= most / 4);
  };
  // Text is as wide here as digits are at most: what stands beside it leaves room.
  const wide = (texts) => Math.max(0, ...texts.map((text) => text.length)) * TEXT * .65;

  // One path a series, whatever the number of days; patterns lie over it as a second one.
  const bars = (data, slot, heightOf, floor) => {
    const width = Math.min(BAR, slot * .8), base = data.days.map(() => 0);
    return data.series.flatMap((series) => {
      const shape = series.values.map((value, day) => {
        if (!(value > 0)) return "";
        const top = floor - heightOf(base[day] += value), tall = heightOf(value);
        return `M${((day + .5) * slot - width / 2).toFixed(2)} ${top.toFixed(2)}h${width.toFixed(2)}v${tall.toFixed(2)}h-${width.toFixed(2)}z`;
      }).join("");
      const [css, decals] = series.paint ?? ["", []];
      const fill = drawing("path", { d: shape, class: css });
      return [fill, ...decals.map((decal) => drawing("path", { d: shape, fill: `url(#${decal})` }))];
    });
  };

  const written = (text, given) => {
    const element = drawing("text", given);
    element.textContent = text;
    return element;
  };

  // Return the drawing, and what says the day under a place in it.
  const paint = (data, { width, height }) => {
    const most = Math.max(...data.days.map((_, day) => sum(data.series.map((series) => series.values[day])))) || 1;
    const step = stepOf(most), lines = Array.from({ length: Math.ceil(most / step) + 1 }, (_, n) => n * step);
    const left = wide(lines.map((line) => tick(line, step))) + 8, floor = height - FOOT, slot = (width - left) / data.days.length;
    const heightOf = (value) => value / lines.at(-1) * (floor - TEXT);
    const image = drawing("svg", { viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" });
    for (const line of lines) {
      const y = Math.round(floor - heightOf(line)) + .5;
      image.append(drawing("path", { class: "line", d: `M${left} ${y}H${width}` }), written(tick(line, step), { x: left - 8, y: y + 4, "text-anchor": "end" }));
    }
    const plot = drawing("g", { transform: `translate(${left} 0)` });
    const mark = drawing("rect", { class: "marked", y: 0, width: slot, height: floor, visibility: "hidden" });
    plot.append(mark, ...bars(data, slot, heightOf, floor));
    const names = data.days.map(short), every = Math.ceil((wide(names) + 8) / slot);
    names.forEach((name, day) => { if (day % every === 0) plot.append(written(name, { x: (day + .5) * slot, y: height - 4, "text-anchor": "middle" })); });
    image.append(plot);
    const dayAt = (x) => {
      const day = Math.floor((x - left) / slot), isDay = day >= 0 && day < data.days.length;
      mark.setAttribute("visibility", isDay ? "visible" : "hidden");
      if (isDay) mark.setAttribute("x", day * slot);
      return isDay ? day : null;
    };
    return { image, dayAt };
  };

  const makeLegend = (data, place) => {
    const list = document.createElement("dl");
    list.className = "usage-legend";
    const entries = [{ name: data.label, total: data.total, values: data.days.map((_, day) => sum(data.series.map((s) => s.values[day]))) }, ...data.series.map((s, n) => ({ ...s, total: data.totals?.[n] }))];
    const show = entries.map((series, n) => {
      const term = document.createElement("dt"), value = document.createElement("dd");
      if (n) term.append(key(series));
      if (series.url) { const link = document.createElement("a"); link.href = series.url; link.append(series.name); term.append(link); } else term.append(series.name);
      const pair = document.createElement("div");
      pair.title = series.name;
      pair.append(term, value);
      list.append(pair);
      return (day) => {
        value.textContent = amount(day === null ? series.total ?? sum(series.values) : series.values[day]);
        if (!n) term.textContent = day === null ? (data.whole ?? "Month") : data.days[day];
      };
    });
    place.after(list);
    return (day) => show.forEach((each) => each(day));
  };

  const draw = async (place) => {
    const answer = await fetch(place.dataset.chart, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const data = await answer.json();
    if (!data.series.length) { place.textContent = data.whole ? `No ${data.label} in this range.` : `No ${data.label} in this month.`; place.classList.add("usage-chart-empty"); return; }
    place.textContent = "";
    const update = makeLegend(data, place), paper = matchMedia("print");
    let drawn;
    const redraw = () => {
      const size = paper.matches ? PAPER : { width: place.clientWidth, height: place.clientHeight };
      if (!size.width) return;
      drawn = paint(data, size);
      place.replaceChildren(drawn.image);
    };
    update(null);
    place.addEventListener("pointermove", (event) => update(drawn.dayAt(event.clientX - place.getBoundingClientRect().left)));
    place.addEventListener("pointerleave", () => { drawn.dayAt(-1); update(null); });
    paper.addEventListener("change", redraw);
    new ResizeObserver(redraw).observe(place);
  };

  const start = () => document.querySelectorAll("[data-chart]").forEach((place) => {
    draw(place).catch(() => { place.textContent = "The chart cannot be drawn now; the table below has the sums."; place.classList.add("usage-chart-empty"); });
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
