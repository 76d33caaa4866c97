// The attention section: all heads small, one large; raw, effective and their difference side by side.

const MEASURES = {
  raw: ["Raw", "The weights as the model used them. Each row sums to 1."],
  effective: ["Effective", "The part of the weights that affects the head's output."],
  difference: ["Difference", "Raw minus effective: the part that has no effect on the head's output."],
};

const KINDS = {
  encoder: "Self-attention of the encoder: each token attends to all tokens of the text.",
  decoder: "Masked self-attention of the decoder: each token attends to itself and the tokens before it.",
  cross: "Cross-attention: while writing a token, the decoder attends to the source.",
};

// A section that folds: text on the left, pictures on the right; while it is closed, its first note in one line.
function section(ctx, id, title, explained, views = [id]) {
  const notes = views.flatMap((view) => ctx.viewData.notes[view] || []);
  const side = make("div", { class: "side" }, ...explained.map((text) => make("p", { class: "explained", text })));
  if (notes.length) side.append(make("ul", { class: "notes" }, ...notes.map((text) => make("li", { text }))));
  const main = make("div", { class: "main" });
  const heading = make("summary", {}, make("h2", { text: title }), make("span", { class: "first-note", text: notes[0] || "" }));
  const body = make("div", { class: "view-body" }, side, main);
  const element = make("details", { class: "view", "data-view": id, "aria-label": title, open: ctx.opens(id) }, heading, body);
  return { title, side, main, element };
}

function attentionSection(ctx) {
  const kinds = ctx.kindsOf("attention", "effective");
  if (!kinds.length) return null;
  const built = section(
    ctx,
    "attention",
    "Attention",
    [
      "Rows are queries, columns are keys; a stronger colour is a larger weight. A decoder's row is named by the token read and the token written after it. Weights show where a head attends, not what it takes from there or whether it matters.",
    ],
    ["attention", "effective"],
  );
  const small = overview(ctx);
  const smallLegend = makeLegend(ctx, "One colour scale for all heads, on square roots.");
  const chooser = kindChooser(ctx, kinds);
  const own = make("button", {
    type: "button",
    class: "switch",
    text: "Scale colours to the chosen head",
    title: "key s",
    onclick: () => ctx.store.set({ own: !ctx.store.state.own }),
  });
  const dotted = make("p", { class: "key" });
  built.side.append(chooser.element, small.element, smallLegend.element, dotted, own);

  const heading = make("h3", { class: "chosen" });
  const verdict = make("p", { class: "verdict" });
  const pending = ["all", ...Object.keys(MEASURES)].map((value) => ({
    value,
    text: value === "all" ? "All three" : MEASURES[value][0],
    key: value[0],
  }));
  const measure = segments("measure", pending, ctx.store.state.measure, (value) => ctx.store.set({ measure: value }));
  const columns = Object.keys(MEASURES).map((name) => measureColumn(ctx, name));
  const row = make("div", { class: "measures" }, ...columns.map((column) => column.element));
  built.main.append(make("div", { class: "headline" }, make("div", {}, heading, verdict), measure.element), row);
  const showLatest = keepLatest(ctx.failed);
  const unclear = keepLatest(ctx.failed);
  let chosen = false;

  function available(kind) {
    const [raw, effective] = ["attention", "effective"].map((view) => Boolean(ctx.viewData.find(view, kind, "weights")));
    if (raw && ctx.viewData.identifiableKinds.includes(kind)) return { raw, effective: false, difference: false };
    return { raw, effective, difference: raw && effective };
  }

  function showOverview({ measure: name }) {
    const kind = ctx.kindIn(kinds);
    const present = available(kind);
    const shown = present[name] ? name : present.raw ? "raw" : "effective";
    const limit = kindLimit(ctx, kind);
    small.show(kind, shown, limit, null);
    smallLegend.show(limit, shown !== "raw");
    dotted.hidden = true;
    unclear(nonIdentifiableHeads(ctx, kind), (found) => {
      dotted.hidden = !found;
      if (!found) return;
      const count = found.flat().filter(Boolean).length;
      const some = count > 0 && count < found.flat().length;
      // Where it holds for all heads or none, a sentence says so instead of dots.
      const sentence = some
        ? "not identifiable: other weights give this head the same output"
        : count
          ? "None of these heads is identifiable with this text."
          : "All of these heads are identifiable with this text: raw and effective attention are equal.";
      dotted.replaceChildren(...(some ? [make("i", { class: "key-dot" })] : []), sentence);
      small.show(kind, shown, limit, some ? found : null);
    });
  }

  function showHead(state) {
    const kind = ctx.kindIn(kinds);
    const present = available(kind);
    const names = Object.keys(MEASURES).filter((name) => present[name]);
    const [layers, heads] = ctx.weights(kind).shape;
    const [layer, head] = [clamp(state.layer, layers), clamp(state.head, heads)];
    const emphasis = names.length === 1 ? names[0] : present[state.measure] ? state.measure : "all";
    measure.mark(emphasis);
    measure.element.hidden = names.length < 2;
    row.dataset.emphasis = emphasis;
    const visibleNames = emphasis === "all" ? names : [emphasis];
    for (const column of columns) column.element.hidden = !visibleNames.includes(column.name);
    row.style.setProperty("--columns", visibleNames.length);
    own.setAttribute("aria-pressed", String(state.own));
    const all = Promise.all(names.map((name) => readWeights(ctx.viewData, kind, name, layer, head)));
    showLatest(Promise.all([all, describeHead(ctx, kind, layer, head)]), ([found, description]) => {
      const values = Object.fromEntries(names.map((name, number) => [name, found[number]]));
      const limit = state.own ? Math.max(...found.map(largest)) : kindLimit(ctx, kind);
      heading.textContent = `${kind} · ${headLabel(ctx.weights(kind), layer, head)}`;
      if (chosen) ctx.say(heading.textContent);
      chosen = true;
      verdict.textContent = description;
      for (const column of columns)
        if (visibleNames.includes(column.name)) column.show({ kind, layer, head, values, limit });
      const [layerAxis, headAxis] = ctx.weights(kind).axes;
      ctx.publish({ kind, layer: layerAxis.entries[layer].text, head: headAxis.entries[head].text, measure: emphasis });
    });
  }

  ctx.store.on("kind layer head measure own", showHead);
  ctx.store.on("kind measure theme", showOverview);
  showHead(ctx.store.state);
  showOverview(ctx.store.state);
  return built;
}

function measureColumn(ctx, name) {
  const [title, explained] = MEASURES[name];
  let current = null;
  const lines = (row, column) => {
    const { kind, layer, head, values } = current;
    const position = row * ctx.weights(kind).shape[3] + column;
    const digits = ctx.weights(kind).code ? 2 : 3;
    return [
      ["at", headLabel(ctx.weights(kind), layer, head)],
      ...Object.entries(values).map(([each, found]) => [each, formatNumber(found[position], digits)]),
    ];
  };
  const legend = makeLegend(ctx);
  const matrix = matrixView(ctx, { name, lines, legend: legend.element });
  const between = linesView(ctx, { name });
  const element = make(
    "figure",
    { class: "measure", "data-measure": name },
    make("figcaption", {}, make("h4", { text: title }), make("p", { text: explained })),
    matrix.element,
    between.element,
  );
  function show(shown) {
    current = shown;
    const matrixData = orient(ctx.weights(shown.kind), shown.values[name]);
    matrix.show(
      matrixData,
      shown.limit,
      `${title} attention, ${shown.kind}, ${headLabel(ctx.weights(shown.kind), shown.layer, shown.head)}`,
    );
    legend.show(shown.limit, name !== "raw");
    between.show(matrixData, shown.limit);
  }
  ctx.store.on("theme", () => current && legend.show(current.limit, name !== "raw"));
  return { name, element, show };
}

function kindLimit(ctx, kind) {
  return Math.max(
    ...["attention", "effective"].map((view) => (ctx.viewData.find(view, kind, "weights") || { limit: 0 }).limit),
  );
}

function kindChooser(ctx, kinds) {
  const description = make("p", { class: "kind-description" });
  const choose = segments(
    "kind of attention",
    kinds.map((value) => ({ value, text: value, key: "k" })),
    ctx.kindIn(kinds),
    (kind) => ctx.store.set({ kind }),
  );
  const mark = () => {
    choose.mark(ctx.kindIn(kinds));
    description.textContent = KINDS[ctx.kindIn(kinds)] || "";
  };
  ctx.store.on("kind", mark);
  mark();
  choose.element.hidden = kinds.length < 2;
  return { element: make("div", { class: "kinds" }, choose.element, description) };
}

// True per layer and head where the weights of some query are not identifiable.
async function nonIdentifiableHeads(ctx, kind) {
  const array = ctx.viewData.find("identifiability", kind, "null");
  if (!array) return null;
  const [layers, heads, queries] = array.shape;
  const found = [];
  for (let layer = 0; layer < layers; layer++) {
    const numbers = await array.read(layer);
    found.push(
      Array.from({ length: heads }, (_, head) =>
        numbers.subarray(head * queries, (head + 1) * queries).some((value) => value > 0),
      ),
    );
  }
  return found;
}

// The identifiability of one head, in words.
async function describeHead(ctx, kind, layer, head) {
  const [keys, rank, none, share] = ["keys", "rank", "null", "null_fraction"].map((name) =>
    ctx.viewData.find("identifiability", kind, name),
  );
  if (!keys || !rank || !none) return "";
  const [k, r, n] = await Promise.all([keys, rank, none].map((array) => array.read(layer, head)));
  const unsure = n.filter((value) => value > 0).length;
  if (!unsure) return "Identifiable: no other weights give this head's output, so effective attention equals raw attention.";
  const most = n.indexOf(Math.max(...n));
  const whole = `Not identifiable${unsure === n.length ? "" : ` for ${unsure} of its ${n.length} queries`}: up to ${formatNumber(k[most])} keys, rank ${formatNumber(r[most])}.`;
  if (!share) return whole;
  const lost = mean([...(await share.read(layer, head))]);
  return `${whole} On average ${percent(lost)} of the norm of a row of weights has no effect on the output.`;
}
