// Sections of identifiability, similarity, faithfulness and positions; and of any array without a section of its own.

function identifiabilitySection(ctx) {
  const kinds = ctx.kindsOf("identifiability");
  if (!kinds.length) return null;
  const built = section(ctx, "identifiability", "Identifiability", [
    "A head is identifiable if only one set of weights gives its output. Once a query has more keys than the rank of the values, infinitely many weights give exactly the same output, and the raw weights are just one of them.",
  ]);
  built.side.append(kindChooser(ctx, kinds).element);
  const counts = chart(ctx, {
    label: "Keys of each query, and the rank of their values",
    name: "rank",
    widest: 640,
    height: 180,
    named: 60,
  });
  const shares = chart(ctx, {
    label: "Fraction of the weights without effect, by query",
    name: "null_fraction",
    widest: 640,
    height: 150,
    named: 60,
  });
  const heading = make("h3", { class: "chosen" });
  const showLatest = keepLatest(ctx.failed);
  const array = (name) => ctx.viewData.find("identifiability", ctx.kindIn(kinds), name);

  function showHead({ layer, head }) {
    const some = array("keys") || array("rank") || array("null_fraction");
    if (!some) return;
    const [l, h] = [clamp(layer, some.shape[0]), clamp(head, some.shape[1])];
    heading.textContent = `${ctx.kindIn(kinds)} · ${headLabel(some, l, h)}`;
    const axis = some.axes[2];
    const x = axis.entries.map((entry) => String(entry.index));
    const read = ["keys", "rank", "null_fraction"].map((name) => (array(name) ? array(name).read(l, h) : null));
    showLatest(Promise.all(read), ([keys, rank, share]) => {
      const lines = [
        [keys, "keys", "series-2"],
        [rank, "rank", "series-0"],
      ].filter(([values]) => values);
      counts.element.hidden = !lines.length;
      shares.element.hidden = !share;
      if (lines.length)
        counts.show({
          x,
          xName: axis.name,
          axis,
          series: lines.map(([values, name, look]) => ({ name, values, look })),
        });
      if (share)
        shares.show({
          x,
          xName: axis.name,
          axis,
          low: 0,
          high: 1,
          series: [{ name: "null_fraction", values: share, look: "series-1" }],
        });
    });
  }
  const nothingHidden = make("p", {
    class: "verdict",
    text: "All heads of this kind are identifiable with this text: every fraction below would be 0.",
  });
  const grid = () =>
    fractionGrid(ctx, {
      label: "fraction of the weights without effect",
      name: "null_fraction",
      describe: (value) => `${percent(value)} without effect`,
      caption: "Fraction of the norm of the weights that has no effect on the output, mean over queries.",
      fractions: () => array("null_fraction"),
      read: meansByHead,
      chosen: [heading, counts.element, shares.element],
      showHead,
    });
  const details = grid();
  const showKind = () => {
    const identifiable = ctx.viewData.identifiableKinds.includes(ctx.kindIn(kinds));
    [nothingHidden.hidden, details.hidden] = [!identifiable, identifiable];
  };
  ctx.store.on("kind", showKind);
  showKind();
  built.main.append(nothingHidden, details);
  return built;
}

async function meansByHead(array) {
  const [layers, heads, queries] = array.shape;
  const found = new Float32Array(layers * heads);
  for (let layer = 0; layer < layers; layer++) {
    const numbers = await array.read(layer);
    for (let head = 0; head < heads; head++)
      found[layer * heads + head] = mean([...numbers.subarray(head * queries, (head + 1) * queries)]);
  }
  return found;
}

// A fraction for each head in a grid, and beside it the details of the chosen head, drawn by `showHead`.
function fractionGrid(ctx, { label, name, describe, caption, fractions, read, chosen, showHead }) {
  const grid = numberGrid(ctx, { label, name, describe });
  const legend = makeLegend(ctx, caption);
  const showLatest = keepLatest(ctx.failed);
  function showGrid() {
    const array = fractions();
    grid.element.hidden = legend.element.hidden = !array;
    if (array) showLatest(read(array), (found) => grid.show(array, found, 1));
    legend.show(1, false);
  }
  ctx.store.on("kind", showGrid);
  ctx.store.on("theme", () => legend.show(1, false));
  ctx.store.on("kind layer head", showHead);
  showGrid();
  showHead(ctx.store.state);
  return make(
    "div",
    { class: "pair" },
    make("div", { class: "narrow" }, grid.element, legend.element),
    make("div", { class: "wide" }, ...chosen),
  );
}

function similaritySection(ctx) {
  const kinds = ctx.kindsOf("similarity");
  if (!kinds.length) return null;
  const built = section(ctx, "similarity", "Learned similarity", [
    "The similarity a head has learned, read from its parameters alone: it does not depend on the text. A query x and a key y score x M y; the symmetric part of M scores both directions alike, and a random M is half symmetric.",
    "Eigenvalues of the symmetric part: above zero, tokens attend to tokens that resemble them in that direction; below zero, to opposite ones. If none is negative, the head has learned a metric.",
  ]);
  built.side.append(kindChooser(ctx, kinds).element);
  const array = (name) => ctx.viewData.find("similarity", ctx.kindIn(kinds), name);
  const plot = chart(ctx, { label: "Eigenvalues, largest first", name: "eigenvalues", widest: 640, height: 200 });
  const heading = make("h3", { class: "chosen" });
  const summary = make("p", { class: "verdict" });
  const showLatest = keepLatest(ctx.failed);

  function showHead({ layer, head }) {
    const some = array("eigenvalues") || array("symmetric_fraction") || array("positive");
    const [l, h] = [clamp(layer, some.shape[0]), clamp(head, some.shape[1])];
    heading.textContent = `${ctx.kindIn(kinds)} · ${headLabel(some, l, h)}`;
    const read = [
      array("eigenvalues") && array("eigenvalues").read(l, h),
      array("symmetric_fraction") && array("symmetric_fraction").read(l),
      array("positive") && array("positive").read(l),
    ];
    showLatest(Promise.all(read), ([eigenvalues, mutual, positive]) => {
      plot.element.hidden = !eigenvalues;
      const parts = [];
      if (mutual) parts.push(`${percent(mutual[h])} of its bilinear form is symmetric.`);
      if (positive) parts.push(positive[h] ? "No eigenvalue is negative." : "Some eigenvalues are negative.");
      summary.textContent = parts.join(" ");
      if (eigenvalues)
        plot.show({
          x: [...eigenvalues].map((_, position) => String(position)),
          xName: "dimension",
          series: [{ name: "eigenvalue", values: eigenvalues, form: "bars" }],
        });
    });
  }
  built.main.append(
    fractionGrid(ctx, {
      label: "symmetric fraction of each head",
      name: "symmetric_fraction",
      describe: (value) => `${percent(value)} symmetric`,
      caption: "Symmetric fraction.",
      fractions: () => array("symmetric_fraction"),
      read: (mutual) => mutual.read(),
      chosen: [heading, summary, plot.element],
      showHead,
    }),
  );
  return built;
}

function faithfulnessSection(ctx) {
  const [drop, score, error] = ["drop", "score", "error"].map((name) => ctx.viewData.find("faithfulness", "", name));
  if (!drop && !score) return null;
  const built = section(ctx, "faithfulness", "Which view to trust", [
    "The k inputs that a view ranks highest are removed, and the drop of the prediction's log-probability is measured: the larger the drop, the more faithful the view. A view that is no better than random order says nothing here. This holds for this text only.",
  ]);
  const plot = chart(ctx, {
    label: "Log-probability lost when the top k inputs are removed",
    name: "drop",
    widest: 680,
    height: 270,
    named: 150,
  });
  const table = make("table", { class: "scores" });
  built.main.append(
    make(
      "div",
      { class: "pair" },
      make("div", { class: "wide" }, plot.element),
      make("div", { class: "narrow" }, table),
    ),
  );
  plot.element.hidden = !drop;
  const plain = (text) => text.replace(/_/g, " ");
  const showLatest = keepLatest(ctx.failed);
  showLatest(Promise.all([drop, score, error].map((array) => array && array.read())), ([drops, scores, errors]) => {
    const methods = (drop || score).axes[0].entries.map((entry) => entry.text);
    if (drop) {
      const [, count] = drop.shape;
      const series = methods.map((name, position) => ({
        name: plain(name),
        values: drops.subarray(position * count, (position + 1) * count),
        look: name === "random" ? "series-random" : `series-${position % 8}`,
      }));
      plot.show({ x: drop.axes[1].entries.map((entry) => entry.text), xName: "inputs removed (k)", series });
    }
    if (!score) return;
    const order = methods
      .map((name, position) => [name, scores[position], errors && errors[position] ? ` ± ${formatNumber(errors[position], 2)}` : ""])
      .sort((one, other) => other[1] - one[1]);
    table.append(
      make("caption", { text: "Mean over k; higher is better" }),
      ...order.map(([name, value, spread]) =>
        make(
          "tr",
          { class: name === "random" ? "baseline" : null },
          make("th", { scope: "row", text: plain(name) }),
          make("td", { text: formatNumber(value) + spread }),
        ),
      ),
    );
  });
  return built;
}

function positionsSection(ctx) {
  const arrays = ctx.viewData.of("positions");
  if (!arrays.length) return null;
  const built = section(ctx, "positions", "Positions", [
    "The vectors added to the tokens for their positions, one row per position. Similar rows are positions that the model can hardly distinguish by these vectors alone.",
  ]);
  const panel = make("div", { class: "panel" });
  const showLatest = arrays.map(() => keepLatest(ctx.failed));
  arrays.forEach((array, number) => {
    const figure = matrixFigure(
      ctx,
      array,
      `positions-${array.kind}`,
      [array.kind, array.name].filter(Boolean).join(" · "),
    );
    panel.append(figure.element);
    showLatest[number](array.read(), (values) => figure.show(values, ""));
  });
  built.main.append(panel);
  return built;
}

// Views without a section of their own: title and explanation.
const GENERIC_VIEWS = {
  scores: [
    "Scores",
    "The attention scores before the softmax, which turns differences of scores into ratios of weights: a key that scores 1 more than another gets e = 2.7 times its weight. Hatched cells are masked: no query may attend to them, and their weight is 0 whatever they score.",
  ],
  norms: [
    "Norms",
    "Each weight times the norm of the value it weights: a key with a large weight but a small value fades, and what a head really takes stands out.",
  ],
  pooling: [
    "Pooling",
    "The weight of each token in the vector of the text: the weights of attention pooling, which sum to 1 in every hop.",
    "With two levels, sentences are weighted in the text, and words in their sentence; the weight of a token in the text is the product.",
  ],
  match: [
    "Why two texts match",
    "The contribution of each pair of tokens, one from each text, to the cosine of the two texts: the numbers sum to the cosine exactly, and a negative pair speaks against the match.",
  ],
  senses: [
    "One word in its sentences",
    "Every occurrence of one word, layer by layer: the static vector is the same for all, and the farther apart two contextual vectors are, the more differently the model reads them.",
  ],
  clusters: [
    "Clusters",
    "Texts grouped by the directions of their vectors (k-means). The plane shows two of many dimensions, so groups that overlap here may still be separate.",
  ],
};

// A generic array: its last two axes as a matrix, with a slider for each axis before them; a single axis as bars.
function genericSection(ctx, view, arrays) {
  const known = Object.hasOwn(SECTION_ARRAYS, view);
  const plain = view.replace(/_/g, " ") + (known ? ", more" : "");
  const [title, ...explained] = Object.hasOwn(GENERIC_VIEWS, view) ? GENERIC_VIEWS[view] : [plain];
  const built = section(ctx, known ? `${view}-more` : view, title, explained, [known ? "" : view]);
  const single = ({ axes, shape }) => axes.length === 1 || (axes.length === 2 && shape[1] === 1);
  built.main.append(...arrays.map((array) => (single(array) ? genericBars(ctx, array) : genericPanel(ctx, array))));
  return built;
}

function genericPanel(ctx, array) {
  const figure = (array.axis("coordinate") ? mapFigure : matrixFigure)(ctx, array, array.title, array.description);
  const lead = array.axes.slice(0, -2);
  const chosen = lead.map(({ name, length }) => (name === "layer" ? length - 1 : 0));
  const showLatest = keepLatest(ctx.failed);
  const where = () => lead.map((axis, position) => `${axis.name} ${axis.entries[chosen[position]].text}`).join(", ");
  const show = () => showLatest(array.read(...chosen), (values) => figure.show(values, where()));
  const sliders = lead.map(
    (axis, position) =>
      slider(axis, chosen[position], (value) => {
        chosen[position] = value;
        show();
      }).element,
  );
  show();
  return make("div", { class: "panel" }, figure.element, make("div", { class: "panel-side" }, ...sliders));
}

// The most bars with a name each, and the letters of a name under a bar.
const NAMED_BARS = 9;
const BAR_LETTERS = 9;

function genericBars(ctx, array) {
  const [axis] = array.axes;
  const plot = chart(ctx, { label: array.description, name: array.title, widest: 640, height: 180 });
  const few = axis.length <= NAMED_BARS;
  const x = axis.entries.map((entry) => (axis.tokens && !few ? String(entry.index) : entry.text));
  const show = (values) =>
    plot.show({
      x,
      xName: axis.name,
      axis: axis.tokens ? axis : null,
      ticks: few ? NAMED_BARS : 6,
      maxLetters: BAR_LETTERS,
      series: [{ name: array.name, values, form: "bars" }],
    });
  keepLatest(ctx.failed)(array.read(), show);
  return plot.element;
}
