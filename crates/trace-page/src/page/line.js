// The time line.
async function zoom(length) {
  const most = Math.max(1, about.records - 1);
  length = Math.max(50, Math.min(most, Math.round(length)));
  const from = Math.max(0, Math.min(most - length, Math.round(at - length / 2)));
  line = await ask("line", { from, to: from + length });
  drawLine();
}
const toX = (record, width) => 84 + (record - line.from) / Math.max(1, line.to - line.from) * (width - 88);
// From step to step only the cursor moves, which has a layer of its own: whoever paints in the canvas paints the whole page.
let painted = null; // the piece that the canvas shows
function drawLine() {
  const canvas = $("line"), ratio = window.devicePixelRatio || 1, width = canvas.clientWidth, height = 120;
  if (canvas.width !== Math.round(width * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = height * ratio;
    painted = null;
  }
  if (painted !== line) paintLine(canvas.getContext("2d"), ratio, width, height);
  painted = line;
  $("cursor").hidden = at < line.from || at > line.to;
  $("cursor").style.transform = `translateX(${toX(at, width) - 1}px)`;
}
function paintLine(context, ratio, width, height) {
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  const clip = (x) => Math.max(84, Math.min(width - 3, x));
  const row = (spans, top, fill) => {
    context.fillStyle = colour(fill);
    for (const span of spans) {
      const left = clip(toX(span.first, width)), right = clip(toX(span.last ?? line.to, width));
      context.fillRect(left, top, Math.max(1, right - left), 16);
    }
  };
  // Between two samples nothing is known: the curve neither goes beyond them nor down to zero.
  const samples = line.not_on_disk, most = Math.max(1, ...samples.map(([, count]) => count));
  if (samples.length) {
    const x = (record) => toX(record, width);
    context.save();
    context.beginPath();
    context.rect(84, 0, width - 87, 48);
    context.clip();
    context.fillStyle = colour("--committed");
    context.beginPath();
    context.moveTo(x(samples[0][0]), 44);
    for (const [record, count] of samples) context.lineTo(x(record), 44 - count / most * 40);
    context.lineTo(x(samples[samples.length - 1][0]), 44);
    context.fill();
    context.restore();
  }
  row(line.operations, 50, "--ready");
  row(line.batches, 72, "--flight");
  row(line.waits, 94, "--waiting");
  context.fillStyle = colour("--text");
  context.font = "12px system-ui, sans-serif";
  [samples.length ? `≤ ${most} patches` : "", "operations", "batches", "waits"].forEach((text, index) => context.fillText(text, 2, [30, 62, 84, 106][index]));
}
