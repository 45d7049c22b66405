const click = (id, act) => $(id).addEventListener("click", act);
const question = (id, act) => click(id, () => still().then(act).catch(report));
question("dirty", sayDirty);
question("wait", sayWait);
question("written", sayWritten);
question("crash", () => {
  other = chosen !== null;
  answers++;
  tell(null, other ? `Now choose the patch without which p${chosen} would be on the disk.` : "Choose a patch first.");
});
question("cut", () => { drawFlights(); sayCut(); return askStates(); });
click("look", look);
$("states").addEventListener("change", chooseState);
click("follow", () => isFollowing ? still().catch(report) : follow());
click("tick", () => tickAll(true));
click("untick", () => tickAll(false));
click("all", () => { cluster = null; $("path").value = ""; $("graph").focus(); again(); });
$("tickets").addEventListener("change", sayWait);
$("part").addEventListener("change", () => { block = { ...block, block: Number($("part").value) }; showBlock(); });
click("ask", () => $("help").showModal());
click("close", () => $("help").close());
const SCROLLS = { ArrowLeft: [-80, 0], ArrowRight: [80, 0], ArrowUp: [0, -80], ArrowDown: [0, 80], Home: [-1e6, -1e6], End: [1e6, 1e6] };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !shown || $("help").open) return;
  if (event.target.matches("input[type=search], select")) { if (event.key === "Escape") event.target.blur(); return; }
  const back = event.shiftKey;
  if (back && SCROLLS[event.key]) {
    const part = [$("answer"), document.querySelector("aside")].find((part) => part.contains(event.target)) || $("graph");
    const [x, y] = SCROLLS[event.key];
    part.scrollBy(x, y);
    return event.preventDefault();
  }
  const keys = {
    ArrowLeft: () => go(at - 1), ArrowRight: () => go(at + 1), Home: () => go(0), End: () => go(about.records - 1),
    ArrowUp: () => jump("operation", true), ArrowDown: () => jump("operation", false),
    b: () => jump("batch", back), f: () => jump("flush", back), w: () => jump("wait", back), d: () => still().then(sayDirty).catch(report),
    l: () => about.is_live && $("follow").click(),
    "/": () => $("search").focus(), "?": () => $("help").showModal(),
    "+": () => still().then(() => zoom((line.to - line.from) / 2)).catch(report),
    "-": () => still().then(() => zoom((line.to - line.from) * 2)).catch(report),
    Escape: forget,
  };
  const act = keys[event.key] || keys[event.key.toLowerCase()];
  if (act) { event.preventDefault(); act(); }
});
$("record").addEventListener("input", () => go(Number($("record").value)));
$("by").addEventListener("change", () => { cluster = null; again(); });
$("path").addEventListener("change", again);
$("search").addEventListener("input", async () => {
  const text = $("search").value;
  if (text === "") return $("found").replaceChildren();
  try {
    await still();
    const { found, is_all } = await ask("search", { text });
    if (text !== $("search").value) return;
    const items = found.slice(0, 30).map((of) => {
      const item = document.createElement("li"), button = document.createElement("button");
      button.textContent = `${of.began_seconds.toFixed(3)} s ${of.label}`;
      button.addEventListener("click", () => go(of.last ?? of.first));
      item.append(button);
      return item;
    });
    if (!is_all || found.length > 30) { const item = document.createElement("li"); item.textContent = "… and more"; items.push(item); }
    if (!found.length) { const item = document.createElement("li"); item.textContent = "none"; items.push(item); }
    $("found").replaceChildren(...items);
  } catch (error) { report(error); }
});
$("line").addEventListener("pointerdown", (event) => {
  if (!line) return;
  const box = $("line").getBoundingClientRect(), share = (event.clientX - box.left - 84) / (box.width - 88);
  if (share >= 0) go(Math.round(line.from + share * (line.to - line.from)));
});
window.addEventListener("resize", () => line && drawLine());

const kind = (of) => of && of.ordering && of.layout ? `${of.ordering} on ${of.layout}, ` : "";
function describe() {
  document.title = `${about.name} — backstitch trace`;
  $("name").textContent = about.name;
  if (about.records === undefined) return;
  // What was halted has no end of its own.
  const cut = about.is_cut_off && !about.is_live ? "; cut off before its end" : "";
  const missing = about.damage ? `; ${about.damage}` : about.lost_events ? `; at least ${about.lost_events} events are missing at its end` : cut;
  $("about").textContent = `${kind(about.description)}${about.records} records in ${about.seconds.toFixed(3)} s, ${about.operations} operations, ${about.batches} batches${missing}`;
  Object.assign($("record"), { min: 0, max: Math.max(0, about.records - 1) });
}
function allowQuestions() {
  for (const id of ["dirty", "wait", "written", "crash", "cut"]) $(id).disabled = shown === null;
}
(async () => {
  try {
    about = await ask("about");
    describe();
    if (about.is_live) {
      follow();
    } else if (about.records === 0) {
      $("moment").textContent = "No records";
      $("count").textContent = "The trace has no records: nothing happened before its recording ended.";
    } else {
      await zoom(about.records);
      // A trace of a crash was recorded for its end.
      await go((about.description || {}).ends_with ? about.records - 1 : 0);
      allowQuestions();
    }
  } catch (error) { report(error); }
  document.body.dataset.ready = "true";
})();
