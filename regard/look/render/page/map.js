// Points in a plane, one large map: their names under the pointer, colours and numbers for their groups.

const MAP_ROOM = 26;
const NEAR = 14;

function mapFigure(ctx, array, name, title) {
  const canvas = make("canvas", { class: "points" });
  const field = make("div", { class: "map", role: "img", "aria-label": title, "data-map": name }, canvas);
  const element = make("figure", { class: "measure" }, make("figcaption", {}, make("h4", { text: title })), field);
  const axis = array.axes[array.axes.length - 2];
  const labels = ctx.sheet.every.find((each) => each.label && each.view === array.view) || null;
  const only = latest(ctx.failed);
  let shown = null;

  function show(values, said) {
    only(labels ? labels.at() : null, (groups) => {
      shown = { values, groups, said, places: [] };
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
    shown.places = placed(shown.values, axis.length, size);
    const look = getComputedStyle(field);
    const radius = axis.length <= 40 ? 4.5 : axis.length <= 1000 ? 3 : 1.8;
    const on = new Set(markedPlaces(ctx.store.state, axis));
    shown.places.forEach(([x, y], place) => {
      context.fillStyle = look.getPropertyValue(`--series-${groupOf(place) % 8}`);
      context.globalAlpha = axis.length <= 40 ? 1 : 0.75;
      context.beginPath();
      context.arc(x, y, on.has(place) ? radius + 3 : radius, 0, 2 * Math.PI);
      context.fill();
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

  function groupOf(place) {
    return shown.groups ? shown.groups[place] : 0;
  }

  // The number of each group in its middle; of few points without groups the beginning of each name.
  function names() {
    if (!shown.groups && axis.length > 40) return [];
    if (!shown.groups) return shown.places.map(([x, y], place) => [axis.entries[place].text.split(" ")[0], x, y - 9]);
    const sums = new Map();
    shown.places.forEach(([x, y], place) => {
      const [sumX, sumY, count] = sums.get(groupOf(place)) || [0, 0, 0];
      sums.set(groupOf(place), [sumX + x, sumY + y, count + 1]);
    });
    return [...sums].map(([group, [x, y, count]]) => [String(group), x / count, y / count + 4]);
  }

  function nearest(event) {
    const box = canvas.getBoundingClientRect();
    const away = ([x, y]) => Math.hypot(x - (event.clientX - box.left), y - (event.clientY - box.top));
    let best = -1;
    shown.places.forEach((place, number) => {
      if (away(place) < (best < 0 ? NEAR : away(shown.places[best]))) best = number;
    });
    return best;
  }

  function leave() {
    ctx.store.set({ hover: null });
    ctx.tip.hide();
  }

  field.addEventListener("pointermove", (event) => {
    const place = shown ? nearest(event) : -1;
    if (place < 0) return leave();
    const entry = axis.entries[place];
    if (axis.tokens) ctx.store.set({ hover: marked(entry, axis.role) });
    const group = shown.groups ? [[labels.name, String(groupOf(place))]] : [];
    const at = shown.said ? [["at", shown.said]] : [];
    ctx.tip.show(event.clientX, event.clientY, [quoted(entry.text)], [...group, ...at]);
  });
  field.addEventListener("pointerleave", leave);
  new ResizeObserver(() => ctx.near(element, "draw", redraw)).observe(field);
  ctx.store.on("theme", () => ctx.near(element, "draw", redraw));
  if (axis.tokens) ctx.store.on("hover pin", () => ctx.near(element, "draw", redraw));
  return { element, show };
}

// Where points lie in a square of so many pixels, both directions to the same scale.
function placed(values, count, size) {
  const at = (place, side) => values[2 * place + side];
  const ends = [0, 1].map((side) => {
    const along = Array.from({ length: count }, (_, place) => at(place, side));
    const low = along.reduce((least, value) => Math.min(least, value), Infinity);
    return [low, along.reduce((most, value) => Math.max(most, value), -Infinity)];
  });
  const span = Math.max(...ends.map(([low, high]) => high - low)) || 1;
  const scale = (size - 2 * MAP_ROOM) / span;
  const middle = ends.map(([low, high]) => (low + high) / 2);
  return Array.from({ length: count }, (_, place) => [
    size / 2 + (at(place, 0) - middle[0]) * scale,
    size / 2 - (at(place, 1) - middle[1]) * scale,
  ]);
}
