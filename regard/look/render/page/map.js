// A scatter plot: names under the pointer, colours and numbers for groups, and a key of the groups.

const MAP_MARGIN = 26;
const HOVER_RADIUS = 14;

function mapFigure(ctx, array, name, title) {
  const canvas = make("canvas", { class: "points" });
  const field = make("div", { class: "map", role: "img", "aria-label": title, "data-map": name }, canvas);
  const key = make("ul", { class: "group-key" });
  const element = make("figure", { class: "measure" }, make("figcaption", {}, make("h4", { text: title })), field, key);
  const axis = array.axes[array.axes.length - 2];
  const labels = ctx.viewData.arrays.find((each) => each.label && each.view === array.view) || null;
  const showLatest = keepLatest(ctx.failed);
  let shown = null;

  function show(values, where) {
    showLatest(labels ? labels.read() : null, (groups) => {
      shown = { values, groups, where, positions: [] };
      if (groups) key.replaceChildren(...keyEntries(groups));
      ctx.near(element, "draw", redraw);
    });
  }

  function redraw() {
    const size = field.clientWidth;
    if (!shown || !size) return;
    const pixels = window.devicePixelRatio || 1;
    canvas.width = canvas.height = Math.round(size * pixels);
    const context = canvas.getContext("2d");
    context.scale(pixels, pixels);
    shown.positions = projectPoints(shown.values, axis.length, size);
    const look = getComputedStyle(field);
    const radius = axis.length <= 40 ? 4.5 : axis.length <= 1000 ? 3 : 1.8;
    // A thin outline keeps dark colours visible on a dark background.
    context.strokeStyle = look.getPropertyValue("--panel-outline");
    context.lineWidth = 0.7;
    const on = new Set(markedPositions(ctx.store.state, axis));
    shown.positions.forEach(([x, y], position) => {
      context.fillStyle = colourOf(groupOf(position));
      context.globalAlpha = axis.length <= 40 ? 1 : 0.75;
      context.beginPath();
      context.arc(x, y, on.has(position) ? radius + 3 : radius, 0, 2 * Math.PI);
      context.fill();
      context.stroke();
    });
    context.globalAlpha = 1;
    context.font = "600 13px system-ui, sans-serif";
    context.textAlign = "center";
    context.lineWidth = 4;
    for (const [text, x, y] of names()) {
      context.strokeStyle = look.getPropertyValue("--panel");
      context.strokeText(text, x, y);
      context.fillStyle = look.getPropertyValue("--ink");
      context.fillText(text, x, y);
    }
  }

  function colourOf(group) {
    return ctx.viewData.palette[group % ctx.viewData.palette.length];
  }

  // A line for each group: its colour, number, size and name.
  function keyEntries(groups) {
    const sizes = new Map();
    for (const group of groups) sizes.set(group, (sizes.get(group) || 0) + 1);
    return [...sizes.keys()].sort((one, other) => one - other).map((group) => {
      const swatch = make("i", { class: "swatch" });
      swatch.style.backgroundColor = colourOf(group);
      const name = labels.names[group] ? make("span", { class: "group-name", dir: "auto", text: labels.names[group] }) : null;
      return make("li", { "data-group": group }, swatch, make("b", { text: `${group} (${sizes.get(group)})` }), name);
    });
  }

  function groupOf(position) {
    return shown.groups ? shown.groups[position] : 0;
  }

  // The number of each group in its middle; of few points without groups the beginning of each name.
  function names() {
    if (!shown.groups && axis.length > 40) return [];
    if (!shown.groups) return shown.positions.map(([x, y], position) => [axis.entries[position].text.split(" ")[0], x, y - 9]);
    const sums = new Map();
    shown.positions.forEach(([x, y], position) => {
      const [sumX, sumY, count] = sums.get(groupOf(position)) || [0, 0, 0];
      sums.set(groupOf(position), [sumX + x, sumY + y, count + 1]);
    });
    return [...sums].map(([group, [x, y, count]]) => [String(group), x / count, y / count + 4]);
  }

  function nearest(event) {
    const box = canvas.getBoundingClientRect();
    const away = ([x, y]) => Math.hypot(x - (event.clientX - box.left), y - (event.clientY - box.top));
    let best = -1;
    shown.positions.forEach((position, number) => {
      if (away(position) < (best < 0 ? HOVER_RADIUS : away(shown.positions[best]))) best = number;
    });
    return best;
  }

  function leave() {
    ctx.store.set({ hover: null });
    ctx.tip.hide();
  }

  field.addEventListener("pointermove", (event) => {
    const position = shown ? nearest(event) : -1;
    if (position < 0) return leave();
    const entry = axis.entries[position];
    if (axis.tokens) ctx.store.set({ hover: tokenMark(entry, axis.role) });
    const group = shown.groups ? [[labels.name, String(groupOf(position))]] : [];
    const where = shown.where ? [["at", shown.where]] : [];
    ctx.tip.show(event.clientX, event.clientY, [quoted(entry.text)], [...group, ...where]);
  });
  field.addEventListener("pointerleave", leave);
  new ResizeObserver(() => ctx.near(element, "draw", redraw)).observe(field);
  ctx.store.on("theme", () => ctx.near(element, "draw", redraw));
  if (axis.tokens) ctx.store.on("hover pin", () => ctx.near(element, "draw", redraw));
  return { element, show };
}

// The pixel coordinates of points in a square, both axes to the same scale.
function projectPoints(values, count, size) {
  const coordinate = (position, side) => values[2 * position + side];
  const ends = [0, 1].map((side) => {
    const alongSide = Array.from({ length: count }, (_, position) => coordinate(position, side));
    const low = alongSide.reduce((least, value) => Math.min(least, value), Infinity);
    return [low, alongSide.reduce((most, value) => Math.max(most, value), -Infinity)];
  });
  const span = Math.max(...ends.map(([low, high]) => high - low)) || 1;
  const scale = (size - 2 * MAP_MARGIN) / span;
  const middle = ends.map(([low, high]) => (low + high) / 2);
  return Array.from({ length: count }, (_, position) => [
    size / 2 + (coordinate(position, 0) - middle[0]) * scale,
    size / 2 - (coordinate(position, 1) - middle[1]) * scale,
  ]);
}
