// The attention of the model: all heads small, one large; raw, effective and the difference of the two side by side.

const MEASURES = {
  raw: ["Raw", "The weights as the model used them. Each row sums to 1."],
  effective: ["Effective", "What of the weights the head's output can tell. The rest could be anything."],
  difference: ["Difference", "Raw minus effective: weight that leaves no trace in the head's output."],
};

const KINDS = {
  encoder: "The text looks at itself, in both directions.",
  decoder: "What is written so far looks at itself, never ahead.",
  cross: "What is written looks at the text it comes from.",
};

// A view: words on the left, pictures on the right.
function section(ctx, id, title, explained, views = [id]) {
  const notes = views.flatMap((view) => ctx.sheet.notes[view] || []);
  const side = make(
    "div",
    { class: "side" },
    make("h2", { text: title }),
    ...explained.map((text) => make("p", { class: "explained", text })),
  );
  if (notes.length) side.append(make("ul", { class: "notes" }, ...notes.map((text) => make("li", { text }))));
  const main = make("div", { class: "main" });
  const element = make("section", { class: "view", "data-view": id, "aria-label": title }, side, main);
  return { title, side, main, element };
}

function attentionSection(ctx) {
  const kinds = ctx.kindsOf("attention", "effective");
  if (!kinds.length) return null;
  const made = section(
    ctx,
    "attention",
    "Attention",
    [
      "Each row is a token that looks, each column a token that is looked at; the stronger the colour, the more weight. Weights tell where a head looks, not what it takes from there nor whether it matters.",
    ],
    ["attention", "effective"],
  );
  const small = overview(ctx);
  const smallLegend = makeLegend(ctx, "One scale for all heads, by square roots.");
  const chooser = kindChooser(ctx, kinds);
  const own = make("button", {
    type: "button",
    class: "switch",
    text: "Scale colours to the chosen head",
    title: "key s",
    onclick: () => ctx.store.set({ own: !ctx.store.state.own }),
  });
  const dotted = make("p", { class: "key" });
  made.side.append(chooser.element, small.element, smallLegend.element, dotted, own);

  const heading = make("h3", { class: "chosen" });
  const verdict = make("p", { class: "verdict" });
  const wanted = ["all", ...Object.keys(MEASURES)].map((value) => ({
    value,
    text: value === "all" ? "All three" : MEASURES[value][0],
    key: value[0],
  }));
  const measure = segments("measure", wanted, ctx.store.state.measure, (value) => ctx.store.set({ measure: value }));
  const columns = Object.keys(MEASURES).map((name) => measureColumn(ctx, name));
  const row = make("div", { class: "measures" }, ...columns.map((column) => column.element));
  made.main.append(make("div", { class: "headline" }, make("div", {}, heading, verdict), measure.element), row);
  const only = latest(ctx.failed);
  const unclear = latest(ctx.failed);
  let chosen = false;

  function available(kind) {
    const [raw, effective] = ["attention", "effective"].map((view) => Boolean(ctx.sheet.find(view, kind, "weights")));
    return { raw, effective, difference: raw && effective };
  }

  function showOverview({ measure: name }) {
    const kind = ctx.kindIn(kinds);
    const there = available(kind);
    const shown = there[name] ? name : there.raw ? "raw" : "effective";
    const limit = kindLimit(ctx, kind);
    small.show(kind, shown, limit, null);
    smallLegend.show(limit, shown !== "raw");
    dotted.hidden = true;
    unclear(unclearHeads(ctx, kind), (found) => {
      dotted.hidden = !found;
      if (!found) return;
      const count = found.flat().filter(Boolean).length;
      const some = count > 0 && count < found.flat().length;
      // Where all heads are alike a sentence says it; a dot on each would only be in the way.
      const sentence = some
        ? "other weights would give the same output of this head"
        : count
          ? "None of these heads is identifiable with this text."
          : "All of these heads are identifiable.";
      dotted.replaceChildren(...(some ? [make("i", { class: "key-dot" })] : []), sentence);
      small.show(kind, shown, limit, some ? found : null);
    });
  }

  function showHead(state) {
    const kind = ctx.kindIn(kinds);
    const there = available(kind);
    const names = Object.keys(MEASURES).filter((name) => there[name]);
    const [layers, heads] = ctx.weights(kind).shape;
    const [layer, head] = [clamp(state.layer, layers), clamp(state.head, heads)];
    const emphasis = there[state.measure] ? state.measure : "all";
    measure.mark(names.length > 1 ? emphasis : names[0]);
    measure.element.hidden = names.length < 2;
    row.dataset.emphasis = emphasis;
    const visibleNames = emphasis === "all" ? names : [emphasis];
    for (const column of columns) column.element.hidden = !visibleNames.includes(column.name);
    row.style.setProperty("--columns", visibleNames.length);
    own.setAttribute("aria-pressed", String(state.own));
    const all = Promise.all(names.map((name) => measured(ctx.sheet, kind, name, layer, head)));
    only(Promise.all([all, verdictOn(ctx, kind, layer, head)]), ([found, said]) => {
      const values = Object.fromEntries(names.map((name, number) => [name, found[number]]));
      const limit = state.own ? Math.max(...found.map(largest)) : kindLimit(ctx, kind);
      heading.textContent = `${kind} · ${headSaid(ctx.weights(kind), layer, head)}`;
      if (chosen) ctx.say(heading.textContent);
      chosen = true;
      verdict.textContent = said;
      for (const column of columns)
        if (visibleNames.includes(column.name)) column.show({ kind, layer, head, values, limit });
      const [layerAxis, headAxis] = ctx.weights(kind).axes;
      ctx.tell({ kind, layer: layerAxis.entries[layer].text, head: headAxis.entries[head].text, measure: emphasis });
    });
  }

  ctx.store.on("kind layer head measure own", showHead);
  ctx.store.on("kind measure theme", showOverview);
  showHead(ctx.store.state);
  showOverview(ctx.store.state);
  return made;
}

function measureColumn(ctx, name) {
  const [title, explained] = MEASURES[name];
  let current = null;
  const lines = (row, column) => {
    const { kind, layer, head, values } = current;
    const place = row * ctx.weights(kind).shape[3] + column;
    const digits = ctx.weights(kind).code ? 2 : 3;
    return [
      ["at", headSaid(ctx.weights(kind), layer, head)],
      ...Object.entries(values).map(([each, found]) => [each, written(found[place], digits)]),
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
    const oriented_ = oriented(ctx.weights(shown.kind), shown.values[name]);
    matrix.show(
      oriented_,
      shown.limit,
      `${title} attention, ${shown.kind}, ${headSaid(ctx.weights(shown.kind), shown.layer, shown.head)}`,
    );
    legend.show(shown.limit, name !== "raw");
    between.show(oriented_, shown.limit);
  }
  ctx.store.on("theme", () => current && legend.show(current.limit, name !== "raw"));
  return { name, element, show };
}

function kindLimit(ctx, kind) {
  return Math.max(
    ...["attention", "effective"].map((view) => (ctx.sheet.find(view, kind, "weights") || { limit: 0 }).limit),
  );
}

function kindChooser(ctx, kinds) {
  const said = make("p", { class: "kind-said" });
  const choose = segments(
    "kind of attention",
    kinds.map((value) => ({ value, text: value, key: "k" })),
    ctx.kindIn(kinds),
    (kind) => ctx.store.set({ kind }),
  );
  const mark = () => {
    choose.mark(ctx.kindIn(kinds));
    said.textContent = KINDS[ctx.kindIn(kinds)] || "";
  };
  ctx.store.on("kind", mark);
  mark();
  choose.element.hidden = kinds.length < 2;
  return { element: make("div", { class: "kinds" }, choose.element, said) };
}

// Per layer and head: is there a query whose weights are not the only ones?
async function unclearHeads(ctx, kind) {
  const array = ctx.sheet.find("identifiability", kind, "null");
  if (!array) return null;
  const [layers, heads, queries] = array.shape;
  const found = [];
  for (let layer = 0; layer < layers; layer++) {
    const numbers = await array.at(layer);
    found.push(
      Array.from({ length: heads }, (_, head) =>
        numbers.subarray(head * queries, (head + 1) * queries).some((value) => value > 0),
      ),
    );
  }
  return found;
}

// What the numbers of identifiability say of one head, in words.
async function verdictOn(ctx, kind, layer, head) {
  const [keys, rank, none, share] = ["keys", "rank", "null", "share"].map((name) =>
    ctx.sheet.find("identifiability", kind, name),
  );
  if (!keys || !rank || !none) return "";
  const [k, r, n] = await Promise.all([keys, rank, none].map((array) => array.at(layer, head)));
  const unsure = n.filter((value) => value > 0).length;
  if (!unsure) return "Identifiable: no other weights give the output of this head.";
  const most = n.indexOf(Math.max(...n));
  const whole = `Not identifiable${unsure === n.length ? "" : ` for ${unsure} of its ${n.length} queries`}: up to ${written(k[most])} keys, rank ${written(r[most])}.`;
  if (!share) return whole;
  const lost = mean([...(await share.at(layer, head))]);
  return `${whole} On average ${percent(lost)} of the length of a row of weights does not show in the output.`;
}
