// Draws the bars of a month in the page's own colours, from the numbers behind data-chart. The
// legend is HTML (the simple build of the library has none): it shows the month, and under the
// pointer a day. Names only ever become text, never HTML.
(() => {
  const COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#9c6b4e"];
  const OTHER = "#97979f";
  const places = (value, most, least = most) => value.toLocaleString("en", { maximumFractionDigits: most, minimumFractionDigits: least });
  const tick = (value) => places(value, value < 10 ? 2 : 0, 0);
  // As the table below (the template filter `in_column`), so that both say the same.
  const amount = (value) => value > 0 && value < 0.005 ? "< 0.01" : places(value, 2);
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const colour = (series, n) => series.colour ?? (series.other ? OTHER : COLOURS[n % COLOURS.length]);
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

  const options = (data, place) => {
    const style = getComputedStyle(place);
    const ink = resolved(style.color), faint = resolved(style.borderTopColor);
    return {
      animation: false,
      textStyle: { fontFamily: style.fontFamily },
      grid: { left: 4, right: 4, top: 12, bottom: 4, containLabel: true },
      xAxis: { type: "category", data: data.days, axisTick: { show: false }, axisLine: { lineStyle: { color: faint } }, axisLabel: { color: ink, hideOverlap: true, formatter: short } },
      yAxis: { type: "value", axisLabel: { color: ink, formatter: tick }, splitLine: { lineStyle: { color: faint } } },
      series: data.series.map((series, n) => ({ name: series.name, type: "bar", stack: "all", barMaxWidth: 28, data: series.values, itemStyle: { color: colour(series, n) } })),
    };
  };

  const makeLegend = (data, place) => {
    const list = document.createElement("dl");
    list.className = "usage-legend";
    const entries = [{ name: data.label, total: data.total, values: data.days.map((_, day) => sum(data.series.map((s) => s.values[day]))) }, ...data.series.map((s, n) => ({ ...s, total: data.totals?.[n] }))];
    const show = entries.map((series, n) => {
      const term = document.createElement("dt"), value = document.createElement("dd");
      if (n) { const mark = document.createElement("span"); mark.className = "swatch"; mark.style.backgroundColor = colour(series, n - 1); term.append(mark); }
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
