// Small charts: lines over an axis, named at their ends, and bars about zero.

const MARGIN = { top: 10, right: 10, bottom: 30, left: 40 };

function chart(ctx, { label, name, widest = 400, height = 150, named = 0 }) {
  const svg = draw("svg", { role: "img", "aria-label": label, "data-chart": name, height });
  const element = make("div", { class: "chart" }, make("p", { class: "chart-title", text: label }), svg);
  element.style.maxWidth = `${widest}px`;
  const inner = { width: 0, height: height - MARGIN.top - MARGIN.bottom };
  let shown = null;
  let markings = null;
  const along = (position) => MARGIN.left + inner.width * shown.along[position];
  const up = (value) => MARGIN.top + inner.height * (1 - (value - shown.low) / (shown.high - shown.low));

  // The number of entries along x that are written as `ticks`, and the `letters` of each.
  function show({
    x,
    xName,
    series,
    low,
    high,
    axis = null,
    marker = null,
    ticks = axis ? 6 : 13,
    maxLetters = Infinity,
  }) {
    const values = series.flatMap((each) => [...each.values]).filter(Number.isFinite);
    const [least, most] = [low ?? Math.min(0, ...values), high ?? Math.max(0, ...values)];
    const placed = series[0].form === "bars" ? x.map((_, position) => (position + 0.5) / x.length) : tickPositions(x);
    const top = most > least ? most : least + 1;
    shown = { x, xName, series, low: least, high: top, axis, marker, ticks, maxLetters, along: placed };
    ctx.near(element, "draw", redraw);
  }

  // Drawn to the room there is, so that text keeps its size.
  function redraw() {
    if (!shown || !element.clientWidth) return;
    inner.width = Math.max(40, element.clientWidth - MARGIN.left - MARGIN.right - named);
    markings = draw("g", { class: "markings" });
    svg.replaceChildren(...frame(), ...shown.series.map(seriesOf), ...names(), markings);
    if (shown.marker !== null) svg.append(upright("marker", shown.marker));
    mark(ctx.store.state);
  }

  function upright(look, position) {
    return draw("line", {
      class: look,
      x1: along(position),
      x2: along(position),
      y1: MARGIN.top,
      y2: MARGIN.top + inner.height,
    });
  }

  function frame() {
    const rows = niceTicks(shown.low, shown.high).flatMap((value) => [
      draw("line", {
        class: value === 0 ? "rule zero" : "rule",
        x1: MARGIN.left,
        x2: MARGIN.left + inner.width,
        y1: up(value),
        y2: up(value),
      }),
      draw("text", { class: "tick", x: MARGIN.left - 6, y: up(value) + 3.5, "text-anchor": "end", text: formatTick(value) }),
    ]);
    const count = Math.min(shown.x.length, shown.ticks);
    const stride = Math.max(1, Math.ceil((shown.x.length - 1) / Math.max(1, count - 1)));
    const columns = shown.x.map((text, position) => [text, position]).filter(([, position]) => position % stride === 0);
    return [
      ...rows,
      ...columns.map(([text, position]) =>
        draw("text", {
          class: "tick",
          x: along(position),
          y: height - 16,
          "text-anchor": "middle",
          text: shortened(text, shown.maxLetters),
        }),
      ),
      draw("text", {
        class: "axis-name",
        x: MARGIN.left + inner.width / 2,
        y: height - 3,
        "text-anchor": "middle",
        text: shown.xName,
      }),
    ];
  }

  function seriesOf({ values, look = "series-0", form = "line" }) {
    if (form === "bars") return bars(values);
    if (form === "band") return draw("path", { class: `band-area ${look}`, d: bandPath(values) });
    // What is not a number has no point, and a line ends before it and begins again after it.
    const points = [...values].map((value, position) => (Number.isFinite(value) ? [along(position), up(value)] : null));
    const runs = points.reduce((all, point) => (point ? all[all.length - 1].push(point) : all.push([]), all), [[]]);
    const lines = runs.map((run) => draw("polyline", { points: run.map((point) => point.join()).join(" ") }));
    const dots = points.length > 16 ? [] : points.filter(Boolean);
    return draw(
      "g",
      { class: `line ${look}` },
      ...lines,
      ...dots.map(([cx, cy]) => draw("circle", { cx, cy, r: 2.4 })),
    );
  }

  function bandPath(values) {
    const half = values.length / 2;
    const point = (value, position) => `${along(position)} ${up(value)}`;
    const lower = [...values.slice(0, half)].map(point);
    const upper = [...values.slice(half)].map(point).reverse();
    return `M${[...lower, ...upper].join("L")}Z`;
  }

  function bars(values) {
    const width = Math.max(0.6, (inner.width / values.length) * 0.76);
    const bar = (value, position) => {
      const [y, height] = [Math.min(up(value), up(0)), Math.max(0.5, Math.abs(up(value) - up(0)))];
      return draw("rect", { class: value < 0 ? "below" : "above", x: along(position) - width / 2, width, y, height });
    };
    return draw("g", {}, ...[...values].map((value, position) => (Number.isFinite(value) ? bar(value, position) : null)));
  }

  // Names at the ends of their lines, pushed apart where ends meet.
  function names() {
    if (!named) return [];
    const ends = shown.series
      .filter((each) => each.name && [...each.values].some(Number.isFinite))
      .map(({ name: text, values, look }) => ({ text, look, end: up([...values].findLast(Number.isFinite)) }));
    ends.sort((one, other) => one.end - other.end);
    ends.forEach((each, number) => {
      each.position = number ? Math.max(each.end, ends[number - 1].position + 14) : Math.max(each.end, MARGIN.top + 2);
    });
    for (let number = ends.length - 1, floor = MARGIN.top + inner.height + 4; number >= 0; number--, floor -= 14) {
      ends[number].position = Math.min(ends[number].position, floor);
    }
    const x = MARGIN.left + inner.width;
    return ends.map(({ text, look, end, position }) =>
      draw(
        "g",
        { class: `name ${look}` },
        draw("path", { d: `M${x + 4} ${end}L${x + 12} ${position}` }),
        draw("text", { x: x + 16, y: position + 3.5, text }),
      ),
    );
  }

  function positionAt(event) {
    const box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left - MARGIN.left) / inner.width;
    const far = shown.along.map((part) => Math.abs(part - x));
    return far.indexOf(Math.min(...far));
  }

  function mark(state) {
    if (!shown || !shown.axis) return;
    const positions = markedPositions(state, shown.axis);
    if (markings) markings.replaceChildren(...positions.map((position) => upright("marking", position)));
  }

  svg.addEventListener("pointermove", (event) => {
    if (!shown) return;
    const position = positionAt(event);
    const entry = shown.axis && shown.axis.entries[position];
    if (entry) ctx.store.set({ hover: tokenMark(entry, shown.axis.role) });
    const title = entry ? [quoted(entry.text), ` (${entry.index})`] : [`${shown.xName} ${shown.x[position]}`];
    ctx.tip.show(
      event.clientX,
      event.clientY,
      title,
      shown.series.filter((each) => each.name).map((each) => [each.name, formatNumber(each.values[position])]),
    );
  });
  svg.addEventListener("pointerleave", () => {
    ctx.tip.hide();
    if (shown && shown.axis) ctx.store.set({ hover: null });
  });
  new ResizeObserver(() => ctx.near(element, "draw", redraw)).observe(element);
  ctx.store.on("hover pin", (state) => ctx.near(element, "mark", () => mark(state)));
  return { element, show };
}

// The text, or as much of it as has room; by characters, so that none is cut in half.
function shortened(text, most) {
  const letters = [...text];
  return letters.length > most ? `${letters.slice(0, most - 1).join("")}…` : text;
}

function niceTicks(low, high) {
  const rough = (high - low) / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const ticks = [];
  for (let number = Math.ceil(low / step - 1e-9); number * step <= high + 1e-9 * step; number++)
    ticks.push(number * step);
  return ticks;
}

// Where the labels of an axis lie between 0 and 1: by their value where all are numbers.
function tickPositions(labels) {
  const numbers = labels.map(Number);
  const even = numbers.some((number) => !Number.isFinite(number)) || new Set(numbers).size < numbers.length;
  const values = even ? labels.map((_, position) => position) : numbers;
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return values.map((number) => (most > least ? (number - least) / (most - least) : 0.5));
}
