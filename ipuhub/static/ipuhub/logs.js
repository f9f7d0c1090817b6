// Follows a log: asks for what came after the last line until the container has ended.
(() => {
  const box = document.getElementById("log");
  const button = document.getElementById("follow");
  const note = document.getElementById("log-note");
  if (!box) return;
  box.scrollTop = box.scrollHeight;
  if (!button || !box.dataset.more) return;
  const PAUSE = 2000;
  let timer = 0, follows = false, asking = false;
  const say = (text) => { if (note) note.textContent = text; };
  const sayRead = (now) => {
    const time = document.createElement("time");
    time.dateTime = now;
    time.textContent = `${now.slice(11, 19)} UTC`;
    note?.replaceChildren("Following; read at ", time, ".");
  };
  const set = (on) => {
    follows = on;
    button.setAttribute("aria-pressed", String(on));
    button.classList.toggle("active", on);
    clearTimeout(timer);
    if (on) ask();
  };
  // Whoever reads further up keeps twice as many lines, and the line being read its place.
  const trim = (atEnd) => {
    const most = Number(box.dataset.most) * (atEnd ? 1 : 2);
    const gone = [...box.children].slice(0, Math.max(0, box.childElementCount - most));
    if (!gone.length) return;
    if (atEnd) { for (const line of gone) line.remove(); return; }
    const { top } = box.getBoundingClientRect();
    const read = [...box.children].slice(gone.length).find((line) => line.getBoundingClientRect().bottom > top);
    const before = read?.getBoundingClientRect().top; // none is read in a box that is not shown
    for (const line of gone) line.remove();
    if (read) box.scrollTop += read.getBoundingClientRect().top - before;
  };
  const append = (html) => {
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    box.insertAdjacentHTML("beforeend", html);
    trim(atEnd);
    if (atEnd) box.scrollTop = box.scrollHeight;
  };
  const take = async (answer) => {
    const [state, text] = [answer.headers.get("X-Log-State"), await answer.text()];
    if (!answer.ok || !state) throw new Error(`The server answered ${answer.status}.`);
    if (state === "away") throw new Error(text);
    if (text && answer.headers.get("X-Log-Mark") !== box.dataset.mark) append(text);
    const gone = answer.headers.get("X-Log-Mark") === box.dataset.mark ? text : "";
    box.dataset.mark = answer.headers.get("X-Log-Mark");
    if (state === "ended") { set(false); button.disabled = true; say(gone || "The container has ended."); }
    else sayRead(new Date().toISOString());
  };
  const ask = async () => {
    if (asking || !follows) return;
    asking = true;
    try {
      const address = `${box.dataset.more}&after=${encodeURIComponent(box.dataset.mark)}`;
      await take(await fetch(address, { headers: { "HX-Request": "true" } }));
    } catch (error) { say(`${error.message} Trying again.`); }
    asking = false;
    clearTimeout(timer);
    if (follows) timer = setTimeout(ask, document.hidden ? PAUSE * 5 : PAUSE);
  };
  button.hidden = false;
  button.addEventListener("click", () => { if (!follows) box.scrollTop = box.scrollHeight; set(!follows); });
})();
