// Lines between tokens: what receives on the left, what gives on the right, the thicker the more.
// Only what shows in the box is drawn, so that a long text costs no more than a short one.

const MANY_TOKENS = 120;
const MAX_LINES = { few: 3000, many: 500 };
const MIN_STEP = 8;

function linesView(ctx, { name }) {
  const [base, above] = [make("canvas", { class: "lines-base" }), make("canvas", { class: "lines-above" })];
  const [left, right] = [make("div", { class: "lines-out" }), make("div", { class: "lines-in" })];
  const window_ = make("div", { class: "lines-window" }, base, above);
  const middle = make("div", { class: "lines-middle" }, window_);
  const box = make("div", { class: "lines-box", "data-lines": name }, left, middle, right);
  const note = make("p", { class: "lines-note" });
  const element = make("div", { class: "lines" }, box, note);
  const size = { line: 20, width: 0, height: 0 };
  let lists = [];
  let shown = null;
  let drawnAt = 0;

  function redraw() {
    if (!shown || !size.width) return;
    drawBase();
    mark(ctx.store.state);
  }

  function drawBase() {
    drawnAt = box.scrollTop;
    for (const list of lists) list.fill(drawnAt, size.height, size.line);
    strokes(base, shown.strongest, 0.06);
  }

  // Lines of one strength are one path; those that pass above or below what shows are left out.
  function strokes(canvas, lines, faint) {
    const pixels = window.devicePixelRatio || 1;
    const [wide, top] = [size.width, drawnAt];
    canvas.width = wide * pixels;
    canvas.height = size.height * pixels;
    const context = canvas.getContext("2d");
    context.setTransform(pixels, 0, 0, pixels, 0, -top * pixels);
    const paths = new Map();
    for (const [row, column, step] of lines) {
      const [from, to] = [(row + 0.5) * size.line, (column + 0.5) * size.line];
      if (Math.max(from, to) < top || Math.min(from, to) > top + size.height) continue;
      const group = 15 * Math.round(step / 15);
      if (!paths.has(group)) paths.set(group, new Path2D());
      paths.get(group).moveTo(0, from);
      paths.get(group).bezierCurveTo(wide * 0.45, from, wide * 0.55, to, wide, to);
    }
    const { ends } = scaleOf(ctx.store.state.theme);
    for (const group of [...paths.keys()].sort((one, other) => Math.abs(one) - Math.abs(other))) {
      const part = Math.abs(group) / STEPS;
      context.strokeStyle = `rgb(${ends[group < 0 ? 0 : 1]} / ${faint + (0.95 - faint) * part})`;
      context.lineWidth = 0.5 + faint + 3 * part * part;
      context.stroke(paths.get(group));
    }
  }

  function mark(state) {
    if (!shown) return;
    const positions = lists.map((list) => markedPositions(state, list.axis));
    lists.forEach((list, number) => list.light(positions[number]));
    const [rows, columns] = positions;
    const some = rows.length + columns.length > 0;
    box.classList.toggle("marked", some);
    above.hidden = !some;
    if (!some) return;
    const first = rows.length ? rows[0] : columns[0];
    if (!box.matches(":hover")) reveal(first * size.line);
    // Under the pointer is a pair of tokens: the lines of the one that looks say more than those of both.
    const pair = rows.length && columns.length && (state.hover || []).every((token) => token.role !== "both");
    strokes(above, linesOf(shown.matrix, shown.limit, rows, pair ? [] : columns), 0.12);
  }

  function reveal(top) {
    if (top >= drawnAt && top + size.line <= drawnAt + size.height) return;
    box.scrollTop = top - size.height / 3;
    drawBase();
  }

  for (const [holder, number] of [
    [left, 0],
    [right, 1],
  ]) {
    const tokenAt = (event) => event.target.closest("[data-position]");
    const markAt = (event) =>
      tokenMark(lists[number].axis.entries[Number(tokenAt(event).dataset.position)], lists[number].axis.role);
    holder.addEventListener("pointerover", (event) => tokenAt(event) && ctx.store.set({ hover: markAt(event) }));
    holder.addEventListener("pointerleave", () => ctx.store.set({ hover: null }));
    holder.addEventListener("click", (event) => tokenAt(event) && togglePin(ctx, markAt(event)));
  }
  box.addEventListener("scroll", () => {
    if (box.scrollTop === drawnAt) return;
    ctx.near(element, "lines", redraw);
    ctx.scrolled(box);
  });
  ctx.scrolling.push(box);
  new ResizeObserver(() => {
    [size.width, size.height] = [middle.clientWidth, box.clientHeight];
    window_.style.height = `${size.height}px`;
    ctx.near(element, "lines", redraw);
  }).observe(box);
  ctx.store.on("hover pin", (state) => ctx.near(element, "mark", () => mark(state)));
  ctx.store.on("theme", () => ctx.near(element, "lines", redraw));

  function show(matrix, limit) {
    const same = shown && shown.matrix.rowAxis === matrix.rowAxis && shown.matrix.columnAxis === matrix.columnAxis;
    const longest = Math.max(matrix.rows, matrix.columns);
    const { lines, all } = selectStrongestLines(matrix, limit || 1, longest > MANY_TOKENS ? MAX_LINES.many : MAX_LINES.few);
    shown = { matrix, limit: limit || 1, strongest: lines };
    const rest = `The ${formatCount(lines.length)} strongest of ${formatCount(all)} lines, and all lines of a token you hover or pin.`;
    const nothing = `No lines: no number here is above ${formatTick(shown.limit * (MIN_STEP / STEPS) ** 2)}.`;
    note.textContent = !all ? nothing : lines.length < all ? rest : "";
    size.line = longest > 60 ? 15 : 20;
    box.style.setProperty("--line-height", `${size.line}px`);
    if (!same) lists = [tokenList(left, matrix.rowAxis), tokenList(right, matrix.columnAxis)];
    middle.style.height = `${longest * size.line}px`;
    ctx.near(element, "lines", redraw);
  }
  return { element, show };
}

function formatCount(number) {
  return number.toLocaleString("en");
}

// A column of tokens, of which only those that show are there.
function tokenList(holder, axis) {
  const spans = new Map();
  let lit = [];
  function fill(top, height, line) {
    holder.style.height = `${axis.length * line}px`;
    const [first, last] = [
      clamp(Math.floor(top / line) - 2, axis.length),
      clamp(Math.ceil((top + height) / line) + 2, axis.length),
    ];
    spans.clear();
    for (let position = first; position <= last; position++) {
      const span = make("span", {
        class: "line-token",
        dir: "auto",
        "data-position": position,
        text: visible(axis.entries[position].text),
      });
      span.style.top = `${position * line}px`;
      spans.set(position, span);
    }
    holder.replaceChildren(...spans.values());
    light(lit);
  }
  function light(positions) {
    for (const position of lit) if (spans.has(position)) spans.get(position).classList.remove("on");
    lit = positions;
    for (const position of lit) if (spans.has(position)) spans.get(position).classList.add("on");
  }
  return { axis, fill, light };
}

// A line is [row, column, step on the scale]. Those too faint to see are none.
function selectStrongestLines({ values, rows, columns, down, right }, limit, most) {
  const steps = new Int16Array(values.length);
  const counts = new Uint32Array(STEPS + 1);
  for (let position = 0; position < values.length; position++) {
    const value = values[position];
    if (value !== value) continue;
    steps[position] = stepOf(value, limit) - STEPS;
    counts[Math.abs(steps[position])] += 1;
  }
  let [least, all] = [STEPS + 1, 0];
  for (let step = STEPS; step >= MIN_STEP; step--) {
    all += counts[step];
    if (all <= most || step === STEPS) least = step;
  }
  const lines = [];
  for (let row = 0; row < rows; row++) {
    for (let column = 0; column < columns; column++) {
      const step = steps[row * down + column * right];
      if (Math.abs(step) >= least) lines.push([row, column, step]);
    }
  }
  return { lines, all };
}

// All lines from some rows and to some columns.
function linesOf({ values, rows, columns, down, right }, limit, fromRows, toColumns) {
  const lines = [];
  const add = (row, column) => {
    const value = values[row * down + column * right];
    const step = value === value ? stepOf(value, limit) - STEPS : 0;
    if (Math.abs(step) >= MIN_STEP) lines.push([row, column, step]);
  };
  for (const row of fromRows) for (let column = 0; column < columns; column++) add(row, column);
  for (const column of toColumns) for (let row = 0; row < rows; row++) if (!fromRows.includes(row)) add(row, column);
  return lines;
}
