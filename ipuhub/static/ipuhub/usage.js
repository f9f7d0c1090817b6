// Draws the bars of a month in the page's own colours, from the numbers behind data-chart. The
// legend is HTML (the simple build of the library has none): it shows the month, and under the
// pointer a day. Names only ever become text, never HTML.
(() => {
  // The patterns of _decals.html, as the library has them: dots, and lines across.
  const DECALS = {
    "decal-1": { symbol: "circle", symbolSize: 0.6, dashArrayX: [[3, 3], [0, 3, 3, 0]], dashArrayY: [3, 0] },
    "decal-2": { symbol: "rect", dashArrayX: [1, 0], dashArrayY: [1.5, 3] },
  };
  const places = (value, most, least = most) => value.toLocaleString("en", { maximumFractionDigits: most, minimumFractionDigits: least });
  const tick = (value) => places(value, value < 10 ? 2 : 0, 0);
  // As the table below (the template filter `in_column`), so that both say the same.
  const amount = (value) => value > 0 && value < 0.005 ? "< 0.01" : places(value, 2);
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const short = (day) => (day.length === 10 ? String(Number(day.slice(8))) : /^\d/.test(day) ? day.slice(5) : day);

  // The theme's colours may be written in ways the library cannot read: let the browser resolve them.
  const pixel = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const resolved = (text) => {
    pixel.clearRect(0, 0, 1, 1);
    pixel.fillStyle = text;
    pixel.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = pixel.getImageData(0, 0, 1, 1).data;
    return `rgba(${r},${g},${b},${a / 255})`;
  };

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
    if (series.colour) fill.style.fill = series.colour;
    mark.append(fill, ...decals.map((decal) => drawing("rect", { ...box, fill: `url(#${decal})` })));
    return mark;
  };
  const style = (series) => {
    if (series.colour) return { color: series.colour };
    const [decal] = series.paint[1];
    const mark = key(series);
    document.body.append(mark);
    const color = resolved(getComputedStyle(mark.firstChild).fill);
    mark.remove();
    return { color, ...(decal && { decal: { ...DECALS[decal], color: "rgba(255,255,255,.85)" } }) };
  };

  const options = (data, place) => {
    const own = getComputedStyle(place);
    const ink = resolved(own.color), faint = resolved(own.borderTopColor);
    return {
      animation: false,
      textStyle: { fontFamily: own.fontFamily },
      grid: { left: 4, right: 4, top: 12, bottom: 4, containLabel: true },
      xAxis: { type: "category", data: data.days, axisTick: { show: false }, axisLine: { lineStyle: { color: faint } }, axisLabel: { color: ink, hideOverlap: true, formatter: short } },
      yAxis: { type: "value", axisLabel: { color: ink, formatter: tick }, splitLine: { lineStyle: { color: faint } } },
      series: data.series.map((series) => ({ name: series.name, type: "bar", stack: "all", barMaxWidth: 28, data: series.values, itemStyle: style(series) })),
    };
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
    const chart = window.echarts.init(place);
    const update = makeLegend(data, place);
    chart.setOption(options(data, place));
    update(null);
    chart.getZr().on("mousemove", (event) => {
      const inside = chart.containPixel("grid", [event.offsetX, event.offsetY]);
      update(inside ? chart.convertFromPixel({ xAxisIndex: 0 }, event.offsetX) : null);
    });
    chart.getZr().on("globalout", () => update(null));
    new ResizeObserver(() => chart.resize()).observe(place);
    new MutationObserver(() => chart.setOption(options(data, place))).observe(document.documentElement, { attributeFilter: ["data-bs-theme"] });
  };

  const start = () => document.querySelectorAll("[data-chart]").forEach((place) => {
    draw(place).catch(() => { place.textContent = "The chart cannot be drawn now; the table below has the sums."; place.classList.add("usage-chart-empty"); });
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
