// Lets the ages grow between two answers, in the words of ipuhub/text.py.
(() => {
  const two = (high, unit, low, lowUnit) => (low ? `${high} ${unit} ${low} ${lowUnit}` : `${high} ${unit}`);
  const words = (s) => {
    const m = Math.floor(s / 60), h = Math.floor(s / 3600), d = Math.floor(s / 86400);
    if (s < 120) return `${s} s`;
    if (s < 600) return two(m, "min", s % 60, "s");
    if (h < 1) return `${m} min`;
    if (d < 1) return two(h, "h", m % 60, "min");
    return d < 8 ? two(d, "d", h % 24, "h") : `${d.toLocaleString("en")} d`;
  };
  setInterval(() => {
    if (document.hidden) return;
    document.querySelectorAll("time[data-age]").forEach((time) => {
      const seconds = Math.floor((Date.now() - Date.parse(time.dateTime)) / 1000);
      const whole = words(seconds), text = time.dataset.age === "brief" ? whole.split(" ", 2).join(" ") : whole;
      if (seconds < 0 || time.textContent === text) return; // a selection in it stays
      time.textContent = text;
    });
  }, 1000);
})();
