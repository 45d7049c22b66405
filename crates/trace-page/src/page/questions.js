// An answer stays, with what was asked and when, until the next one; only the last question is answered.
let answers = 0, answered = null;
function tell(asked, text) {
  answered = asked;
  $("answer").textContent = text;
  age();
}
function age() {
  const isOld = answered !== null && answered.record !== shown.record;
  $("answer").classList.toggle("old", isOld);
  const now = isOld ? ` (the page is at #${shown.number} now)` : "";
  const text = answered === null ? "" : `At #${answered.number}, ${answered.what}${now}:`;
  if ($("asked").textContent !== text) $("asked").textContent = text;
}
async function say(question, what, words = {}) {
  const mine = ++answers, { record, number } = shown, isOfStates = question === "cut" || question === "state";
  $("flights").hidden = !isOfStates;
  $("ticket").hidden = question !== "wait" || shown.waits.length < 2;
  try {
    const { text } = await ask(question === "state" ? question : "why/" + question, { record, ...words });
    if (mine === answers) tell({ record, number, what }, text);
  } catch (error) {
    if (mine === answers) tell({ record, number, what }, error.message);
  }
}
async function jump(kind, isBack) {
  try {
    await still();
    const { record } = await ask("next", { kind, record: at, back: isBack ? 1 : 0 });
    if (record !== null) go(record);
  } catch (error) { report(error); }
}
// The boxes of the blocks on their way, by block; one that is still on its way keeps its tick and the focus.
const boxes = new Map();
let cutAt = null; // the record that the last cut was asked about
function drawFlights() {
  const flights = new Map(shown.flights.map((of) => [of.block, of]));
  for (const [key, label] of boxes) if (!flights.has(key)) { label.remove(); boxes.delete(key); }
  for (const [key, of] of flights) {
    if (!boxes.has(key)) {
      const label = document.createElement("label"), box = document.createElement("input");
      box.type = "checkbox";
      box.value = key;
      box.checked = isAll;
      box.addEventListener("change", () => { isAll = false; sayCut(); });
      label.append(box, document.createElement("span"));
      boxes.set(key, label);
      $("boxes").append(label);
    }
    const more = (of.patches_count ?? of.patches.length) - of.patches.length;
    const text = ` ${of.name}: ${of.patches.map((patch) => "p" + patch).join(" ")}${more > 0 ? ` and ${more} more` : ""}`;
    const words = boxes.get(key).lastChild;
    if (words.textContent !== text) words.textContent = text;
  }
  const rest = (shown.flights_count ?? flights.size) - flights.size;
  $("unboxed").textContent = rest > 0 ? `… and ${rest.toLocaleString("en")} more, which only “All” takes in` : flights.size ? "" : "None is on its way.";
  $("tick").hidden = $("untick").hidden = flights.size < 2;
  return cutAt !== shown.record;
}
// The states to choose from, where the trace has what is needed to make them.
let offered = [];
async function askStates() {
  const { record } = shown;
  let words;
  try {
    const found = await ask("states", { record });
    if (record !== shown.record) return;
    if (found.why_not) throw new Error(found.why_not);
    offered = found.offered;
    const same = found.blocks - found.differing, unknown = found.unknown ? ` What ${many(found.unknown, "batch", "batches")} wrote is not known.` : "";
    words = `${found.count === "1" ? "One image is" : `${found.count} images are`} possible${same ? `; ${many(same, "block")} on the way would change nothing` : ""}.${unknown}`;
    if (String(offered.length) !== found.count) words += ` ${offered.length} of them to choose from:`;
  } catch (error) {
    if (record !== shown.record) return;
    offered = [];
    words = `What would be found is not known: ${error.message}.`;
  }
  $("possible").textContent = words;
  $("states").replaceChildren(new Option("choose one", "", true, true), ...offered.map((of, index) => new Option(of.words, index)));
  $("choice").hidden = $("look").hidden = offered.length === 0;
}
function chooseState() {
  const of = offered[Number($("states").value)];
  if ($("states").value === "" || !of) return;
  isAll = false;
  for (const [key, label] of boxes) label.firstChild.checked = of.blocks.includes(key);
  return say("state", `of the state in which ${of.words}`, { blocks: of.blocks.join(",") });
}
// Of the state whose blocks are ticked.
function look() {
  const blocks = isAll ? "all" : [...$("boxes").querySelectorAll("input:checked")].map((box) => box.value).join(",");
  return say("state", "of the state with the blocks that are ticked", { blocks });
}
let isAll = false; // also those on their way without a box
function sayCut() {
  const all = shown.flights_count ?? shown.flights.length;
  const arrived = [...$("boxes").querySelectorAll("input:checked")].map((box) => box.value);
  cutAt = shown.record;
  const what = isAll ? `all ${many(all, "block")}` : `${arrived.length} of ${many(all, "block")}`;
  return say("cut", `if ${what} on the way arrived`, { blocks: isAll ? "all" : arrived.join(",") });
}
function tickAll(is) {
  isAll = is;
  for (const label of boxes.values()) label.firstChild.checked = is;
  return sayCut();
}
function sayDirty() {
  const path = $("path").value;
  if (chosen !== null) return say("dirty", `why p${chosen} is dirty${path ? " (the chosen patch, whatever its path)" : ""}`, { patch: chosen });
  return say("dirty", path ? `why ${path} is dirty` : "why anything is dirty", { path });
}
function sayWait() {
  const waits = shown.waits, select = $("tickets");
  if (waits.length === 0) return say("wait", "nobody waits; the next wait");
  const mine = waits.find((ticket) => String(ticket) === select.value) ?? waits[waits.length - 1];
  select.replaceChildren(...waits.map((ticket) => new Option(ticket, ticket, false, ticket === mine)));
  return say("wait", waits.length > 1 ? `wait ${mine} of ${waits.length} that are open` : `wait ${mine}`, { ticket: mine });
}
function sayWritten() {
  if (block === null || block.number === null) return report(new Error("Choose a patch of the block first."));
  return say("written", `why ${block.name} was written again`, { block: block.block, number: block.number });
}
