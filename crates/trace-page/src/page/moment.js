"use strict";
const $ = (id) => document.getElementById(id);
const LANE = 54, WIDE = 148, TALL = 36, GAP = 26, TITLE = 170, COLUMNS = 5, BOX = 196, CLUSTER = 74, MOST_COLUMN = 30;
const MOST_WAYS = 1500;  // arrows between clusters in one answer
const LETTER = { "discarded": "D", "committed": "C", "in flight": "F", "ready": "R", "waiting": "W" };
const CLASS = { "discarded": "committed", "committed": "committed", "in flight": "flight", "ready": "ready", "waiting": "waiting" };
let about = null;        // what the trace is
let line = null;         // the piece of the time line that is shown
let shown = null;        // the moment that is drawn
let at = 0;              // the record
let chosen = null;       // a patch
let cluster = null;      // a cluster whose patches are shown
let clusterName = "";    // what that cluster is called
let block = null;        // the block that is shown; it stays when all of its patches are on the disk
let other = false;       // the next patch that is chosen is the one of "without"
// Characters that turn the direction of writing: a name with them would be shown as another one.
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const many = (count, one, more = one + "s") => `${count.toLocaleString("en")} ${count === 1 ? one : more}`;
let base = "";           // what comes before each question: of a recording that was halted, which one
const query = (words) => {
  const full = Object.entries(words).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return full.length ? "?" + full.map(([key, value]) => key + "=" + encodeURIComponent(value)).join("&") : "";
};
async function ask(path, words = {}) {
  const reply = await fetch(base + path + query(words)).catch(() => { throw new Error("No answer: is backstitch trace serve still running?"); });
  const text = (await reply.text()).replace(TURNS, (turn) => "\\\\u" + turn.charCodeAt(0).toString(16).padStart(4, "0"));
  let document;
  try { document = JSON.parse(text); } catch { throw new Error(`${reply.status}: ${text.trim()}`); }
  if (!reply.ok) throw new Error(document.error || "refused");
  return document;
}
const report = (error) => { answers++; tell(null, error.message); };

// The moment: one question is under way at a time, and the last that was wanted comes next.
let isAsking = false, wanted = null, resting = 0;
// A step is likely to be followed by another one: the next moment is asked for while this one is drawn.
let before = null, ahead = null;
const filtered = (record) => ({ record, by: $("by").value, path: $("path").value, cluster });
// The graph that came last, and of what: the next one comes as what is different.
let known = { graph: null, of: null, record: null };
const askMoment = (words) => ask("moment", { ...words, since: known.of === base + query({ ...words, record: null }) ? known.record : null });
async function momentAt(record) {
  const words = filtered;
  const key = query(words(record)), of = base + query(words(null)), step = record - before;
  const reply = ahead !== null && ahead.key === key ? ahead.reply : askMoment(words(record));
  ahead = null;
  let found = await reply;
  if (found.graph.since !== undefined) {
    // What it is different from may have been given up meanwhile.
    if (known.of === of && known.record === found.graph.since) found.graph = changed(known.graph, found.graph);
    else found = await ask("moment", words(record));
  }
  known = { graph: found.graph, of, record: found.record };
  found.by = $("by").value;
  if (query(words(record)) !== key) return null;
  before = record;
  const next = record + step;
  if (Math.abs(step) === 1 && next >= 0 && next < about.records) {
    ahead = { key: query(words(next)), reply: askMoment(words(next)) };
    ahead.reply.catch(() => {});
  }
  return found;
}
const edgeKey = (edge) => edge.key || (edge.key = edge.after + ">" + edge.before);
// A graph after a step. What stays the same are the same objects: they need not be drawn again.
function changed(graph, { nodes, gone, edges, edges_gone, ...rest }) {
  const without = new Set([...gone, ...nodes.map((node) => node.patch)]), less = new Set(edges_gone.map(([after, before]) => after + ">" + before));
  const stay = without.size ? graph.nodes.filter((node) => !without.has(node.patch)) : graph.nodes;
  const lead = less.size ? graph.edges.filter((edge) => !less.has(edgeKey(edge))) : graph.edges;
  return {
    ...rest,
    nodes: nodes.length ? [...stay, ...nodes].sort((a, b) => a.patch - b.patch) : stay,
    edges: edges.length ? [...lead, ...edges].sort((a, b) => a.after - b.after || a.before - b.before) : lead,
  };
}
async function go(record) {
  if (!about || !about.records || isHalting) return;
  if (isFollowing) {
    const step = record - at;
    try { await halt(); } catch (error) { return report(error); }
    record = at + step;
  }
  at = Math.max(0, Math.min(about.records - 1, record));
  $("record").value = at;
  wanted = at;
  if (isAsking) return;
  isAsking = true;
  try {
    while (wanted !== null) {
      const record = wanted;
      wanted = null;
      const found = await momentAt(record);
      // The page follows a mount meanwhile.
      if (isFollowing) return;
      // What is to be drawn has changed meanwhile.
      if (found === null) { wanted ??= at; continue; }
      shown = found;
      draw();
    }
  } catch (error) {
    report(error);
  } finally {
    isAsking = false;
  }
  if (isFollowing) return;
  clearTimeout(resting);
  resting = setTimeout(rest, 150);
}

// What need not follow each step.
async function rest() {
  const mine = base;
  if (!shown || isFollowing) return;
  try {
    const { records } = await ask("records", { record: at });
    if (isFollowing || base !== mine) return;
    $("lines").replaceChildren(...records.slice(-14).map(([place, number, text]) => {
      const item = document.createElement("li");
      item.textContent = `#${number} ${text}`;
      if (place === shown.record) item.setAttribute("aria-current", "true");
      return item;
    }));
    if (chosen !== null || block !== null) await showBlock();
    if (!$("flights").hidden && drawFlights()) { sayCut(); askStates(); }
    if (at < line.from || at > line.to) await zoom(line.to - line.from);
    const last = $("lines").querySelector("[aria-current]");
    $("said").textContent = `${$("moment").textContent}. ${last ? last.textContent + "." : ""} ${$("count").textContent}`;
  } catch (error) { report(error); }
  document.body.dataset.rested = shown.record;
}

function draw() {
  const moment = `After record #${shown.number}, ${shown.seconds.toFixed(6)} s after the mount`;
  $("moment").textContent = moment;
  set($("record"), "aria-valuetext", moment);
  const doing = shown.operation ? ` In the middle of ${shown.operation}.` : "";
  const flying = shown.flights_count ?? shown.flights.length;
  const away = flying ? ` ${many(flying, "block is", "blocks are")} on the way.` : "";
  $("count").textContent = `${many(shown.patches, "patch is", "patches are")} not on the disk.${away}${doing}`;
  if (answered) age();
  drawLine();
  drawGraph();
  document.body.dataset.record = shown.record;
  document.body.dataset.frames = Number(document.body.dataset.frames || 0) + 1;
}
