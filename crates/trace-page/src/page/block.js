const NO_BLOCK = $("block").textContent;
let blocks = 0; // questions about the block: only the last one's answer is drawn
async function showBlock() {
  const question = ++blocks;
  try {
    const found = await ask("block", { record: at, patch: chosen, block: block && block.block });
    if (question === blocks) drawBlock(found);
  } catch (error) {
    if (question === blocks) $("block").textContent = error.message;
  }
}
function drawBlock(found) {
  block = found.block === null ? null : found;
  const canvas = $("bytes"), context = canvas.getContext("2d");
  context.clearRect(0, 0, 64, 64);
  if (block === null) {
    $("parts").hidden = true;
    $("block").textContent = `p${chosen} is empty, or on the disk already: no block is still to be written for it.`;
    return;
  }
  const each = Math.max(1, (block.len_bytes || 4096) / 4096);
  const fill = (patch) => {
    context.fillStyle = patch.patch === chosen ? colour("--accent") : colour({ "in flight": "--flight", "ready": "--ready", "waiting": "--waiting" }[patch.standing] || "--committed");
    for (const [offset, length] of patch.is_whole_block ? [[0, block.len_bytes]] : patch.ranges) {
      const first = Math.floor(offset / each), last = Math.min(4095, Math.floor((offset + length - 1) / each));
      for (let cell = first; cell <= last; cell++) context.fillRect(cell % 64, Math.floor(cell / 64), 1, 1);
    }
  };
  block.patches.filter((patch) => patch.patch !== chosen).forEach(fill);
  block.patches.filter((patch) => patch.patch === chosen).forEach(fill);
  // A run has many blocks: the user chooses which one is shown.
  const parts = found.blocks || [];
  if (parts.length > 1) {
    const options = parts.map(([id, name]) => new Option(name, id, false, id === block.block));
    if (found.blocks_count > parts.length) options.push(Object.assign(new Option(`… and ${found.blocks_count - parts.length} more`), { disabled: true }));
    if (document.activeElement !== $("part") || $("part").length !== options.length) $("part").replaceChildren(...options);
  }
  $("parts").hidden = parts.length < 2;
  const lines = block.patches.map((patch) => {
    const left = patch.ranges_left_out ? ` (${many(patch.ranges_left_out, "range")} more, not drawn)` : "";
    return `${patch.patch === chosen ? "▸ " : "  "}p${patch.patch} ${patch.change}${left}: ${patch.standing}, for ${patch.operation}`;
  });
  const rest = block.patches_count - block.patches.length;
  if (rest > 0) lines.push(`… and ${many(rest, "patch", "patches")} more`);
  if (block.patches_count === 0) lines.push("Nothing is to be written to it: all of it is on the disk.");
  if (chosen !== null && rest === 0 && !block.patches.some((patch) => patch.patch === chosen)) lines.push(`p${chosen} is not there any more: it is on the disk, was taken back, or is part of another patch.`);
  $("block").textContent = `${block.name}, ${block.len_bytes} bytes\n` + lines.join("\n");
}

// A canvas does not know light-dark().
const colours = new Map();
function colour(name) {
  if (!colours.has(name)) {
    const probe = document.createElement("span");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    colours.set(name, getComputedStyle(probe).color);
    probe.remove();
  }
  return colours.get(name);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { colours.clear(); painted = null; if (shown) draw(); if (block && block.patches) drawBlock(block); });
