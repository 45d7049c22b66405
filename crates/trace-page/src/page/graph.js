// The graph. What is there already stays where it is, and only what has changed is touched.
const SVG = "http://www.w3.org/2000/svg";
function element(name, attributes = {}, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
// An element remembers what it was told last, which is faster to read than its attributes.
const set = (of, name, value) => {
  const told = of.told || (of.told = {});
  if (told[name] !== value) { told[name] = value; of.setAttribute(name, value); }
};
const isNew = (of, name, value) => {
  const told = of.told || (of.told = {}), is = told[name] !== value;
  told[name] = value;
  return is;
};
const short = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
const svg = element("svg"), layers = ["lanes", "edges", "nodes"].map(() => element("g"));
const head = element("marker", { id: "head", viewBox: "0 0 8 8", refX: 8, refY: 4, markerUnits: "userSpaceOnUse", markerWidth: 8, markerHeight: 8, orient: "auto" });
head.append(element("path", { d: "M0 0 L8 4 L0 8 z", fill: "context-stroke" }));
const defs = element("defs");
defs.append(head);
svg.append(defs, ...layers);
$("graph").append(svg);
const drawn = [new Map(), new Map(), new Map()]; // by layer: what is there, by key
function keep(layer, keys) {
  const focused = document.activeElement;
  for (const [key, made] of drawn[layer]) {
    if (keys.has(key)) continue;
    // Otherwise the focus would fall to the beginning of the page.
    if (made === focused) $("graph").focus({ preventScroll: true });
    made.remove();
    drawn[layer].delete(key);
  }
}
function get(layer, key, make) {
  let made = drawn[layer].get(key);
  if (!made) { made = make(); drawn[layer].set(key, made); layers[layer].append(made); }
  return made;
}
function clear() { for (const layer of [0, 1, 2]) keep(layer, new Set()); lanes.clear(); columns.clear(); slots.clear(); }

const lanes = new Map();   // of a cluster: its row
const columns = new Map(); // of a patch: its column
const slots = new Map();   // of a cluster among clusters: its place
function place(places, keys) {
  const live = new Set(keys);
  for (const key of places.keys()) if (!live.has(key)) places.delete(key);
  const used = new Set(places.values());
  let free = 0;
  for (const key of live) {
    if (places.has(key)) continue;
    while (used.has(free)) free++;
    used.add(free);
    places.set(key, free);
  }
}
let mode = "";
function drawGraph() {
  const graph = shown.graph, now = (graph.clusters ? "clusters" : "nodes") + " by " + shown.by;
  if (mode !== now) { clear(); mode = now; near = undefined; }
  if (graph.clusters) drawClusters(graph); else drawNodes(graph);
  drawExtent(graph);
}

// How much of what there is the graph shows, and what hides the rest.
function drawExtent(graph) {
  const path = $("path").value, words = [];
  const filters = [cluster !== null ? `${clusterName} and its neighbours` : "", path ? `path ${path} and what that waits for` : ""].filter((text) => text);
  const only = filters.length ? `Only ${filters.join(", of ")}: ` : "";
  if (graph.clusters) {
    const left = graph.clusters_left_out, patches = graph.clusters.reduce((sum, of) => sum + Object.values(of.counts).reduce((a, b) => a + b, 0), 0);
    words.push(`${only}${many(patches + graph.patches_left_out, "patch", "patches")}, too many to draw one by one: together by ${shown.by}.`);
    if (left) words.push(`The largest ${graph.clusters.length} are drawn; ${many(left, "smaller one", "smaller ones")} with ${many(graph.patches_left_out, "patch", "patches")} are not: “Only path” finds them.`);
    if (graph.ways.length >= MOST_WAYS) words.push("Some arrows between them are not drawn.");
  } else {
    const all = many(shown.patches, "patch that is", "patches that are") + " not on the disk.";
    if (only || graph.nodes.length < shown.patches) words.push(`${only}${graph.nodes.length.toLocaleString("en")} of ${all}`);
    else words.push(shown.patches === 0 ? "All patches are on the disk." : shown.patches === 1 ? "The only " + all.slice(2) : "All " + all);
    if (graph.patches_left_out) words.push(`${many(graph.patches_left_out, "more patch", "more patches")} of it, or next to it, are not drawn.`);
    if (graph.edges_left_out) words.push(`${many(graph.edges_left_out, "arrow is", "arrows are")} not drawn.`);
  }
  const text = words.join(" ");
  if ($("extent").textContent !== text) $("extent").textContent = text;
  $("all").hidden = filters.length === 0;
}

function button(act) {
  const g = element("g", { tabindex: "0", role: "button" });
  g.addEventListener("click", act);
  g.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); event.stopPropagation(); act(); } });
  return g;
}

function drawNodes({ nodes, edges }) {
  place(lanes, nodes.map((node) => node.cluster));
  const live = new Set(nodes.map((node) => node.patch)), used = new Map();
  for (const key of columns.keys()) if (!live.has(key)) columns.delete(key);
  for (const node of nodes) if (columns.has(node.patch)) {
    if (!used.has(node.cluster)) used.set(node.cluster, new Set());
    used.get(node.cluster).add(columns.get(node.patch));
  }
  // To the right of what it waits for, so that arrows lead to the left.
  const waitsFor = new Map();
  for (const { after, before } of edges) waitsFor.has(after) ? waitsFor.get(after).push(before) : waitsFor.set(after, [before]);
  for (const node of nodes) {
    if (columns.has(node.patch)) continue;
    if (!used.has(node.cluster)) used.set(node.cluster, new Set());
    const taken = used.get(node.cluster);
    let free = Math.min(MOST_COLUMN, 1 + Math.max(-1, ...(waitsFor.get(node.patch) || []).map((before) => columns.get(before) ?? -1)));
    while (taken.has(free)) free++;
    taken.add(free);
    columns.set(node.patch, free);
  }
  let width = 400, height = 60;
  const spots = new Map();
  keep(0, new Set(lanes.keys()));
  for (const [name, row] of lanes) {
    const y = 12 + row * LANE;
    height = Math.max(height, y + LANE);
    get(0, name, () => {
      const g = element("g");
      g.append(element("line", { class: "lane", x1: 0, y1: y + LANE - 9, x2: 20000, y2: y + LANE - 9 }), element("text", { class: "name", x: 10, y: y + 22 }, short(name, 24)), element("title", {}, name));
      return g;
    });
  }
  keep(2, live);
  for (const node of nodes) {
    const x = TITLE + 10 + columns.get(node.patch) * (WIDE + GAP), y = 12 + lanes.get(node.cluster) * LANE;
    width = Math.max(width, x + WIDE + 20);
    const g = get(2, node.patch, () => {
      const g = button(() => choose(node.patch));
      g.append(element("rect", { width: WIDE, height: TALL, rx: 4 }), element("text", { x: 7, y: 15 }, "p" + node.patch), element("text", { x: 7, y: 29 }), element("title"), element("text", { class: "standing", x: WIDE - 7, y: 15 }));
      return g;
    });
    if (!g.spot || g.spot[0] !== x || g.spot[1] !== y) g.spot = [x, y];
    spots.set(node.patch, g.spot);
    const isChosen = node.patch === chosen;
    if (!isNew(g, "node", node) & !isNew(g, "spot", g.spot) & !isNew(g, "isChosen", isChosen)) continue;
    const [rect, , label, title, standing] = g.children;
    const heavy = node.kind === "hard" || node.kind === "run" ? " heavy" : "";
    const stands = node.rolled_back ? "rolled back" : node.standing;
    const words = `p${node.patch}: ${node.label}, ${node.standing}${node.rolled_back ? ", rolled back: its block is on its way without it" : ""}`;
    set(g, "transform", `translate(${x} ${y})`);
    set(g, "class", isChosen ? "chosen" : "");
    set(rect, "class", `patch ${CLASS[node.standing]}${heavy}${node.rolled_back ? " rolled-back" : ""}`);
    set(g, "data-patch", node.patch);
    set(g, "aria-pressed", String(isChosen));
    if (isNew(g, "words", words)) { title.textContent = words; label.textContent = short(node.label, 21); standing.textContent = stands; }
  }
  set(svg, "class", edges.length > 150 ? "many" : "");
  drawEdges(edges, spots, [WIDE, TALL], chosen);
  size(width, height);
}

function drawEdges(edges, spots, [wide, tall], mine) {
  const keys = new Set();
  for (const edge of edges) {
    const { after, before } = edge, from = spots.get(after), to = spots.get(before);
    if (!from || !to) continue;
    const key = edgeKey(edge), isMine = mine !== null && (after === mine || before === mine);
    keys.add(key);
    const path = get(1, key, () => element("path", { "marker-end": "url(#head)" }));
    if (!isNew(path, "from", from) & !isNew(path, "to", to) & !isNew(path, "isMine", isMine)) continue;
    const isLeft = to[0] + wide <= from[0];
    const x1 = isLeft ? from[0] : from[0] + wide / 2, x2 = isLeft ? to[0] + wide : to[0] + wide / 2;
    const isUp = to[1] < from[1];
    const y1 = isLeft ? from[1] + tall / 2 : isUp ? from[1] : from[1] + tall;
    const y2 = isLeft ? to[1] + tall / 2 : isUp ? to[1] + tall : to[1];
    const bend = isLeft ? Math.max(12, (x1 - x2) / 3) : 0, drop = isLeft ? 0 : (isUp ? -1 : 1) * Math.max(10, Math.abs(y1 - y2) / 3);
    set(path, "d", `M${x1} ${y1} C${x1 - bend} ${y1 + drop} ${x2 + bend} ${y2 - drop} ${x2} ${y2}`);
    set(path, "class", isMine ? "edge chosen" : "edge");
  }
  keep(1, keys);
}

let near; // the cluster whose ways are drawn
function drawClusters({ clusters, ways }) {
  place(slots, clusters.map((of) => of.cluster));
  keep(0, new Set());
  keep(2, new Set(slots.keys()));
  let height = 60;
  const spots = new Map();
  for (const of of clusters) {
    const slot = slots.get(of.cluster), isOne = of.cluster !== null;
    const x = 14 + slot % COLUMNS * (BOX + 34), y = 12 + Math.floor(slot / COLUMNS) * CLUSTER;
    spots.set(of.cluster, [x, y]);
    height = Math.max(height, y + CLUSTER + 4);
    const counts = Object.entries(of.counts).filter(([, count]) => count > 0);
    const words = `${of.name}: ${counts.map(([word, count]) => count + " " + word).join(", ")}`;
    const g = get(2, of.cluster, () => {
      const g = isOne ? button(() => open(of.cluster, g.told.name)) : element("g");
      const come = () => { near = of.cluster; if (shown.graph.clusters) drawGraph(); };
      g.addEventListener("focus", come);
      g.addEventListener("pointerenter", come);
      g.setAttribute("transform", `translate(${x} ${y})`);
      g.append(element("text", { x: 0, y: 11 }), element("rect", { class: "patch", y: 16, width: BOX, height: 20, rx: 4, fill: "none" }), element("g"), element("title"), element("text", { x: 0, y: 49 }));
      return g;
    });
    isNew(g, "name", of.name);
    if (!isNew(g, "words", words)) continue;
    const [name, , bar, title, letters] = g.children;
    name.textContent = short(of.name, 30);
    title.textContent = isOne ? words : words + ": they cannot be drawn one by one";
    letters.textContent = counts.map(([word, count]) => `${LETTER[word]} ${count}`).join("  ");
    const all = counts.reduce((sum, [, count]) => sum + count, 0);
    let left = 0;
    bar.replaceChildren(...counts.map(([word, count]) => {
      const wide = count / all * BOX, part = element("rect", { class: CLASS[word], x: left, y: 16, width: wide, height: 20 });
      left += wide;
      return part;
    }));
  }
  // All arrows at once are too many to follow: only those of the cluster with the pointer or the focus are drawn.
  set(svg, "class", "");
  drawEdges(near === undefined ? [] : ways.filter((way) => way.after === near || way.before === near), spots, [BOX, 54], null);
  size(COLUMNS * (BOX + 34) + 20, height);
}

function size(width, height) { set(svg, "width", width); set(svg, "height", height); }

async function choose(patch) {
  try { await still(); } catch (error) { return report(error); }
  if (other && chosen !== null) {
    other = false;
    return say("crash", `whether a crash can leave p${chosen} without p${patch}`, { with: chosen, without: patch });
  }
  chosen = patch;
  block = null;
  drawGraph();
  await showBlock();
}
function open(id, name) {
  cluster = id;
  clusterName = name;
  if (shown.by === "block") { chosen = null; block = { block: id, name }; }
  again();
}
function forget() {
  chosen = cluster = block = null;
  other = false;
  blocks++;
  $("parts").hidden = true;
  $("bytes").getContext("2d").clearRect(0, 0, 64, 64);
  $("block").textContent = NO_BLOCK;
  again();
}
