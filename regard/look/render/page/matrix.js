// A matrix, large: one canvas pixel a cell, scaled by the browser; labels, marks and the number under the pointer.

const LABEL = 11;
const LARGEST_CELL = 34;

// Outputs and queries are rows, inputs and keys columns, in whichever order the array stores them.
function orient(array, values) {
  const [first, second] = array.axes.slice(-2);
  const turned = first.role === "in" && second.role === "out";
  const [rowAxis, columnAxis] = turned ? [second, first] : [first, second];
  return {
    values,
    rowAxis,
    columnAxis,
    rows: rowAxis.length,
    columns: columnAxis.length,
    down: turned ? 1 : second.length,
    right: turned ? second.length : 1,
  };
}

function matrixView(ctx, { name, tallest = 760, lines, legend }) {
  const canvas = make("canvas", { class: "cells" });
  const bands = make("div", { class: "bands" });
  const seams = make("div", { class: "bands" });
  const field = make("div", { class: "field", tabindex: 0, role: "img", "data-matrix": name }, canvas, seams, bands);
  const top = make("div", { class: "labels-top", "aria-hidden": "true" });
  const left = make("div", { class: "labels-left", "aria-hidden": "true" });
  const axisNames = make("p", { class: "axis-names" });
  const plot = make("div", { class: "plot" }, make("div"), top, left, field, make("div"), legend);
  const element = make("div", { class: "matrix" }, axisNames, plot);
  let shown = null;
  let cell = { width: 0, height: 0 };
  let cursor = null;

  function layout() {
    if (!shown) return;
    const { rowAxis, columnAxis, rows, columns } = shown.matrix;
    const room = element.clientWidth;
    if (!room) return;
    const height = Math.min(tallest, Math.max(320, innerHeight - 220));
    cell = cellFor(room - labelWidth(rowAxis, true), height, columns, rows);
    const named = { rows: cell.height > LABEL };
    if (!named.rows) cell = cellFor(room - labelWidth(rowAxis, false), height, columns, rows);
    named.columns = cell.width > LABEL;
    const gutter = { left: labelWidth(rowAxis, named.rows), top: labelWidth(columnAxis, named.columns) };
    plot.style.gridTemplateColumns = `${gutter.left}px ${cell.width * columns}px`;
    plot.style.gridTemplateRows = `${gutter.top}px ${cell.height * rows}px`;
    field.style.setProperty("--cell-width", `${cell.width}px`);
    field.style.setProperty("--cell-height", `${cell.height}px`);
    field.classList.toggle("meshed", Math.min(cell.width, cell.height) >= 9);
    ctx.near(element, "layout", () => {
      seams.replaceChildren(...sideBoundaries(rowAxis, "row", "top"), ...sideBoundaries(columnAxis, "column", "left"));
      labels(left, rowAxis, cell.height, "top", named.rows);
      labels(top, columnAxis, cell.width, "left", named.columns);
      repaint();
      mark(ctx.store.state);
    });
  }

  function repaint() {
    if (!shown) return;
    const { matrix, limit } = shown;
    const pixels = window.devicePixelRatio || 1;
    const [width, height] = [cell.width * matrix.columns * pixels, cell.height * matrix.rows * pixels];
    paint(canvas, matrix, limit, ctx.store.state.theme, Math.round(width), Math.round(height));
  }

  function mark(state) {
    if (!shown) return;
    const { rowAxis, columnAxis } = shown.matrix;
    const rows = markedPositions(state, rowAxis);
    const columns = markedPositions(state, columnAxis);
    bands.replaceChildren(
      ...rows.map((position) => band("row", "top", "height", position, rowAxis.length)),
      ...columns.map((position) => band("column", "left", "width", position, columnAxis.length)),
    );
    markLabels(left, rowAxis, rows, cell.height, "top");
    markLabels(top, columnAxis, columns, cell.width, "left");
  }

  function cellMark(row, column) {
    const { rowAxis, columnAxis } = shown.matrix;
    return [...tokenMark(rowAxis.entries[row], rowAxis.role), ...tokenMark(columnAxis.entries[column], columnAxis.role)];
  }

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const { rows, columns } = shown.matrix;
    const row = Math.floor(((event.clientY - box.top) / box.height) * rows);
    const column = Math.floor(((event.clientX - box.left) / box.width) * columns);
    return row >= 0 && row < rows && column >= 0 && column < columns ? [row, column] : null;
  }

  function point(row, column, x, y) {
    if (!cursor || cursor[0] !== row || cursor[1] !== column) {
      cursor = [row, column];
      ctx.store.set({ hover: cellMark(row, column) });
    }
    const { rowAxis, columnAxis, values, down, right } = shown.matrix;
    const title = [
      `${rowAxis.name} `,
      quoted(rowAxis.entries[row].text),
      ` (${rowAxis.entries[row].index}) ← ${columnAxis.name} `,
      quoted(columnAxis.entries[column].text),
      ` (${columnAxis.entries[column].index})`,
    ];
    ctx.tip.show(x, y, title, lines(row, column, values[row * down + column * right]));
  }

  function leave() {
    cursor = null;
    ctx.store.set({ hover: null });
    ctx.tip.hide();
  }

  field.addEventListener("pointermove", (event) => {
    const position = shown && cellAt(event);
    if (position) point(...position, event.clientX, event.clientY);
  });
  field.addEventListener("pointerleave", leave);
  field.addEventListener("blur", leave);
  field.addEventListener("click", (event) => {
    const position = shown && cellAt(event);
    if (position) togglePin(ctx, cellMark(...position));
  });
  field.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!shown || (!step && event.key !== "Enter")) return;
    event.preventDefault();
    event.stopPropagation();
    const { rows, columns } = shown.matrix;
    const [row, column] = cursor || [-1, 0];
    if (!step) return togglePin(ctx, cellMark(Math.max(0, row), column));
    const next = cursor ? [clamp(row + step[0], rows), clamp(column + step[1], columns)] : [0, 0];
    const box = canvas.getBoundingClientRect();
    point(...next, box.left + (next[1] + 0.5) * cell.width, box.top + (next[0] + 0.5) * cell.height);
    ctx.say(ctx.tip.element.innerText);
  });

  new ResizeObserver(layout).observe(element);
  ctx.store.on("hover pin", (state) => ctx.near(element, "mark", () => mark(state)));
  ctx.store.on("theme", () => ctx.near(element, "paint", repaint));

  function show(matrix, limit, label) {
    const same = shown && shown.matrix.rowAxis === matrix.rowAxis && shown.matrix.columnAxis === matrix.columnAxis;
    shown = { matrix, limit: limit || 1 };
    field.setAttribute("aria-label", label);
    axisNames.textContent = `${axisLabel(matrix.columnAxis)} across, ${axisLabel(matrix.rowAxis)} down`;
    if (same) ctx.near(element, "paint", repaint);
    else layout();
  }
  return { element, show };
}

function axisLabel({ name, over }) {
  return over.length > 1 ? `${name} (${over.join(", then ")})` : name;
}

// Lines between the texts of an axis that has several.
function sideBoundaries({ entries, length }, kind, start) {
  const positions = entries
    .map((entry, position) => (position && entry.side !== entries[position - 1].side ? position : 0))
    .filter(Boolean);
  return positions.map((position) => {
    const seam = make("div", { class: `seam ${kind}` });
    seam.style[start] = `${(100 * position) / length}%`;
    return seam;
  });
}

function clamp(position, count) {
  return Math.max(0, Math.min(count - 1, position));
}

// Square unless one text is much longer than the other; whole pixels where they hardly make it smaller.
function cellFor(width, height, columns, rows) {
  const [wide, high] = [Math.min(LARGEST_CELL, width / columns), Math.min(LARGEST_CELL, height / rows)];
  const square = Math.min(wide, high);
  const stretched = Math.max(rows / columns, columns / rows) > 3 ? 2.5 * square : square;
  // A little more where that makes room for labels.
  const most = (size) => (square >= 9 && size >= LABEL + 2 ? Math.max(stretched, LABEL + 2) : stretched);
  const pixels = window.devicePixelRatio || 1;
  const whole = (size) => (size >= 4 ? Math.floor(size * pixels) / pixels : size);
  return { width: whole(Math.min(wide, most(wide))), height: whole(Math.min(high, most(high))) };
}

const ruler = document.createElement("canvas").getContext("2d");

// Room for the labels of an axis: of its tokens where each has a line, else of numbers.
function labelWidth(axis, named) {
  ruler.font = `${LABEL}px system-ui, sans-serif`;
  if (!named) return 10 + ruler.measureText(String(axis.length)).width;
  const widths = axis.entries.map((entry) => ruler.measureText(visible(entry.text).slice(0, 40)).width);
  return Math.min(axis.predictsNext ? 170 : 92, 12 + Math.max(...widths));
}

// Every token where there is room for each; else a number now and then.
function labels(box, axis, size, side, named) {
  const stride = named ? 1 : [5, 10, 20, 25, 50, 100, 200, 500].find((step) => step * size >= 26) || 1000;
  box.replaceChildren();
  for (let position = 0; position < axis.length; position += stride) {
    const text = named ? visible(axis.entries[position].text) : String(axis.entries[position].index);
    box.append(labelAt(text, position, size, side, "label"));
  }
}

function labelAt(text, position, size, side, kind) {
  const label = make("span", { class: kind, dir: "auto", text });
  label.style[side] = `${(position + 0.5) * size}px`;
  return label;
}

function markLabels(box, axis, positions, size, side) {
  for (const old of box.querySelectorAll(".label-on")) old.remove();
  for (const position of positions) box.append(labelAt(visible(axis.entries[position].text), position, size, side, "label-on"));
}

function band(kind, start, length, position, count) {
  const built = make("div", { class: `band ${kind}` });
  built.style[start] = `${(100 * position) / count}%`;
  built.style[length] = `${100 / count}%`;
  return built;
}
