// Draws the bars of a month in the page's own colours; the numbers come from the address in data-chart.
(() => {
  const COLOURS = ["#4269d0", "#efb118", "#ff725c", "#6cc5b0", "#3ca951", "#ff8ab7", "#a463f2", "#9c6b4e"];
  const OTHER = "#97979f";
  const root = document.documentElement;
  const theme = (name) => getComputedStyle(document.body).getPropertyValue(name).trim();
  const amount = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });

  const options = (data) => {
    const ink = theme("--tblr-body-color"), faint = theme("--tblr-border-color"), paper = theme("--tblr-bg-surface") || theme("--tblr-body-bg");
    const colour = (series, n) => (series.other ? OTHER : COLOURS[n % COLOURS.length]);
    return {
      animation: false,
      textStyle: { fontFamily: getComputedStyle(document.body).fontFamily },
      grid: { left: 8, right: 8, top: 12, bottom: 64, containLabel: true },
      legend: { type: "scroll", bottom: 0, icon: "circle", itemWidth: 10, itemHeight: 10, textStyle: { color: ink }, pageTextStyle: { color: ink }, pageIconColor: ink, pageIconInactiveColor: faint, formatter: (name) => (name.length > 28 ? `${name.slice(0, 27)}…` : name) },
      // Rich text is drawn on the canvas: a name is never read as HTML, and no inline style is needed.
      tooltip: { trigger: "axis", renderMode: "richText", confine: true, backgroundColor: paper, borderColor: faint, textStyle: { color: ink }, axisPointer: { type: "shadow" },
        formatter: (points) => {
          const shown = points.filter((point) => point.value > 0).sort((a, b) => b.value - a.value);
          const sum = shown.reduce((all, point) => all + point.value, 0);
          return [`${points[0].axisValue}: ${amount(sum)}`, ...shown.map((point) => `${amount(point.value)}  ${point.seriesName.slice(0, 40)}`)].join("\n");
        } },
      xAxis: { type: "category", data: data.days, axisTick: { show: false }, axisLine: { lineStyle: { color: faint } }, axisLabel: { color: ink, formatter: (day) => String(Number(day.slice(8))), hideOverlap: true } },
      yAxis: { type: "value", axisLabel: { color: ink, formatter: (value) => amount(value) }, splitLine: { lineStyle: { color: faint } } },
      series: data.series.map((series, n) => ({ name: series.name, type: "bar", stack: "all", barMaxWidth: 28, data: series.values, itemStyle: { color: colour(series, n) }, emphasis: { focus: "series" } })),
    };
  };

  const draw = async (place) => {
    const answer = await fetch(place.dataset.chart, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(String(answer.status));
    const data = await answer.json();
    place.textContent = "";
    if (!data.series.length) { place.textContent = `No ${data.label} in this month.`; place.classList.add("usage-chart-empty"); return; }
    const chart = window.echarts.init(place, null, { renderer: "canvas" });
    chart.setOption(options(data));
    new ResizeObserver(() => chart.resize()).observe(place);
    new MutationObserver(() => chart.setOption(options(data), true)).observe(root, { attributeFilter: ["data-bs-theme"] });
  };

  const start = () => document.querySelectorAll("[data-chart]").forEach((place) => {
    draw(place).catch(() => { place.textContent = "The chart cannot be drawn now; the table below has the sums."; });
  });
  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start); else start();
})();
