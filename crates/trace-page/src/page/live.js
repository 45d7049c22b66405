// A mount that is being recorded: the page follows its newest moment until it is halted at one. What is halted is a trace like any other.
const LOOK = 250;        // milliseconds between two looks at the mount
const LOOK_AGAIN = 2000; // the same when there was no answer
let follows = 0;         // following is begun and ended; only the last one goes on
let isFollowing = false, isHalting = false;
let recording = null, seen = null; // the recording that is followed, and how many of its records were there at the last look
const sleep = (milliseconds) => new Promise((done) => setTimeout(done, milliseconds));

function drawFollow() {
  $("follow").hidden = false;
  $("follow").textContent = isFollowing ? "Halt (l)" : "Follow (l)";
  $("follow").disabled = isHalting;
}
async function follow() {
  if (isFollowing || isHalting) return;
  const mine = ++follows;
  isFollowing = true;
  base = "";
  seen = ahead = null;
  answers++;
  tell(null, "");
  clearTimeout(resting);
  wanted = null;
  $("flights").hidden = $("ticket").hidden = true;
  drawFollow();
  while (mine === follows) {
    let pause = LOOK;
    try {
      const words = filtered(null), by = $("by").value;
      const found = await ask("live", { ...words, since: seen, recording });
      if (mine !== follows) return;
      if (found.moment) drawLive(found, by);
      else if (found.records === 0) $("moment").textContent = "Nothing has happened yet";
      if (found.ended) {
        report(new Error(found.ended));
        if (found.records > 0) return await still();
        isFollowing = false;
        return drawFollow();
      }
    } catch (error) {
      if (mine !== follows) return;
      report(error);
      pause = LOOK_AGAIN;
    }
    await sleep(pause);
  }
}
function drawLive(found, by) {
  const isFirst = shown === null;
  ({ recording, records: seen, line, moment: shown } = found);
  shown.by = by;
  at = shown.record;
  about.records = found.records;
  Object.assign($("record"), { min: found.first, max: at, value: at });
  const text = `${kind(about.description)}following: the last ${found.seconds.toFixed(1)} s, ${many(found.records - found.first, "record")}`;
  if ($("about").textContent !== text) $("about").textContent = text;
  draw();
  $("lines").replaceChildren(...found.operations.map(([record, label]) => {
    const item = document.createElement("li");
    item.textContent = `#${record} ${label}`;
    return item;
  }));
  if (isFirst) allowQuestions();
}

// Halts at the moment that is shown, under whatever number it has then.
async function halt() {
  if (!isFollowing || shown === null) return;
  follows++;
  isFollowing = false;
  isHalting = true;
  drawFollow();
  const { number } = shown;
  try {
    const halted = await ask("halt");
    base = `at/${halted.halted}/`;
    about = { ...await ask("about"), is_live: true };
    describe();
    const last = about.records - 1;
    at = halted.recording === recording ? Math.max(0, Math.min(last, number - halted.first)) : last;
    before = ahead = null;
    await zoom(about.records);
  } finally {
    isHalting = false;
    drawFollow();
  }
}
// A question is about a moment that stays.
async function still() {
  if (!isFollowing) return;
  await halt();
  await go(at);
}
// What is shown of the moment has changed.
function again() {
  if (isFollowing) seen = null; else go(at);
}
