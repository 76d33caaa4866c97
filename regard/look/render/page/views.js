// The other views, one section each; and any array no section knows.

function identifiabilitySection(ctx) {
  const kinds = ctx.kindsOf("identifiability");
  if (!kinds.length) return null;
  const made = section(ctx, "identifiability", "Identifiability", [
    "A head is identifiable when only one set of weights gives its output. Once a query sees more keys than the values carry dimensions (the rank), countless other weights give exactly the same output, and a picture of the raw weights shows just one of them.",
  ]);
  made.side.append(kindChooser(ctx, kinds).element);
  const counts = chart(ctx, {
    label: "Keys each query sees, and the rank of what they carry",
    name: "rank",
    widest: 640,
    height: 180,
    named: 60,
  });
  const shares = chart(ctx, {
    label: "Share that does not show, by query",
    name: "share",
    widest: 640,
    height: 150,
    named: 60,
  });
  const heading = make("h3", { class: "chosen" });
  const only = latest(ctx.failed);
  const array = (name) => ctx.sheet.find("identifiability", ctx.kindIn(kinds), name);

  function showHead({ layer, head }) {
    const some = array("keys") || array("rank") || array("share");
    if (!some) return;
    const [l, h] = [clamp(layer, some.shape[0]), clamp(head, some.shape[1])];
    heading.textContent = `${ctx.kindIn(kinds)} · ${headSaid(some, l, h)}`;
    const axis = some.axes[2];
    const x = axis.entries.map((entry) => String(entry.index));
    const read = ["keys", "rank", "share"].map((name) => (array(name) ? array(name).at(l, h) : null));
    only(Promise.all(read), ([keys, rank, share]) => {
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
          series: [{ name: "share", values: share, look: "series-1" }],
        });
    });
  }
  made.main.append(
    sharesByHead(ctx, {
      label: "share that does not show",
      name: "share",
      said: (value) => `${percent(value)} does not show`,
      caption: "Share of the length of the weights that does not show in the output, mean over queries.",
      shares: () => array("share"),
      read: meansByHead,
      chosen: [heading, counts.element, shares.element],
      showHead,
    }),
  );
  return made;
}

async function meansByHead(array) {
  const [layers, heads, queries] = array.shape;
  const found = new Float32Array(layers * heads);
  for (let layer = 0; layer < layers; layer++) {
    const numbers = await array.at(layer);
    for (let head = 0; head < heads; head++)
      found[layer * heads + head] = mean([...numbers.subarray(head * queries, (head + 1) * queries)]);
  }
  return found;
}

// A share of each head, all in a grid, and beside it what there is to see of the chosen one, which `showHead` shows.
function sharesByHead(ctx, { label, name, said, caption, shares, read, chosen, showHead }) {
  const grid = numberGrid(ctx, { label, name, said });
  const legend = makeLegend(ctx, caption);
  const only = latest(ctx.failed);
  function showGrid() {
    const array = shares();
    grid.element.hidden = legend.element.hidden = !array;
    if (array) only(read(array), (found) => grid.show(array, found, 1));
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
  const made = section(ctx, "similarity", "Learned similarity", [
    "What a head holds to be alike, read from its weights alone: this does not depend on the text. A query x and a key y score x M y; the share of M that is symmetric is mutual (x finds y as alike as y finds x), and one half means no preference.",
    "Eigenvalues of the symmetric part: above zero, tokens seek what resembles them in that direction; below zero, what is opposite. With none below zero, a token never finds itself unlike.",
  ]);
  made.side.append(kindChooser(ctx, kinds).element);
  const array = (name) => ctx.sheet.find("similarity", ctx.kindIn(kinds), name);
  const plot = chart(ctx, { label: "Eigenvalues, largest first", name: "eigenvalues", widest: 640, height: 200 });
  const heading = make("h3", { class: "chosen" });
  const said = make("p", { class: "verdict" });
  const only = latest(ctx.failed);

  function showHead({ layer, head }) {
    const some = array("eigenvalues") || array("mutual") || array("positive");
    const [l, h] = [clamp(layer, some.shape[0]), clamp(head, some.shape[1])];
    heading.textContent = `${ctx.kindIn(kinds)} · ${headSaid(some, l, h)}`;
    const read = [
      array("eigenvalues") && array("eigenvalues").at(l, h),
      array("mutual") && array("mutual").at(l),
      array("positive") && array("positive").at(l),
    ];
    only(Promise.all(read), ([eigenvalues, mutual, positive]) => {
      plot.element.hidden = !eigenvalues;
      const parts = [];
      if (mutual) parts.push(`${percent(mutual[h])} of what it has learned is mutual.`);
      if (positive) parts.push(positive[h] ? "No eigenvalue is below zero." : "Some eigenvalues are below zero.");
      said.textContent = parts.join(" ");
      if (eigenvalues)
        plot.show({
          x: [...eigenvalues].map((_, place) => String(place)),
          xName: "dimension",
          series: [{ name: "eigenvalue", values: eigenvalues, form: "bars" }],
        });
    });
  }
  made.main.append(
    sharesByHead(ctx, {
      label: "mutual share of each head",
      name: "mutual",
      said: (value) => `${percent(value)} mutual`,
      caption: "Mutual share.",
      shares: () => array("mutual"),
      read: (mutual) => mutual.at(),
      chosen: [heading, said, plot.element],
      showHead,
    }),
  );
  return made;
}

function faithfulnessSection(ctx) {
  const [drop, score, error] = ["drop", "score", "error"].map((name) => ctx.sheet.find("faithfulness", "", name));
  if (!drop && !score) return null;
  const made = section(ctx, "faithfulness", "Which view to trust", [
    "Does a view point at what the model needs? The k inputs it ranks highest are removed, and the log-probability the prediction loses is measured: the higher, the better the view. One that does no better than random says nothing here. It holds for this text only.",
  ]);
  const plot = chart(ctx, {
    label: "Log-probability lost when the top k inputs are removed",
    name: "drop",
    widest: 680,
    height: 270,
    named: 150,
  });
  const table = make("table", { class: "scores" });
  made.main.append(
    make(
      "div",
      { class: "pair" },
      make("div", { class: "wide" }, plot.element),
      make("div", { class: "narrow" }, table),
    ),
  );
  plot.element.hidden = !drop;
  const plain = (text) => text.replace(/_/g, " ");
  const only = latest(ctx.failed);
  only(Promise.all([drop, score, error].map((array) => array && array.at())), ([drops, scores, errors]) => {
    const methods = (drop || score).axes[0].entries.map((entry) => entry.text);
    if (drop) {
      const [, count] = drop.shape;
      const series = methods.map((name, place) => ({
        name: plain(name),
        values: drops.subarray(place * count, (place + 1) * count),
        look: name === "random" ? "series-random" : `series-${place % 8}`,
      }));
      plot.show({ x: drop.axes[1].entries.map((entry) => entry.text), xName: "inputs removed (k)", series });
    }
    if (!score) return;
    const order = methods
      .map((name, place) => [name, scores[place], errors && errors[place] ? ` ± ${written(errors[place], 2)}` : ""])
      .sort((one, other) => other[1] - one[1]);
    table.append(
      make("caption", { text: "Mean over k; higher is better" }),
      ...order.map(([name, value, spread]) =>
        make(
          "tr",
          { class: name === "random" ? "baseline" : null },
          make("th", { scope: "row", text: plain(name) }),
          make("td", { text: written(value) + spread }),
        ),
      ),
    );
  });
  return made;
}

function positionsSection(ctx) {
  const arrays = ctx.sheet.of("positions");
  if (!arrays.length) return null;
  const made = section(ctx, "positions", "Positions", [
    "The vectors that tell the model where a token stands, one row a position. Rows that look alike are places the model can hardly tell apart by these vectors alone.",
  ]);
  const panel = make("div", { class: "panel" });
  const only = arrays.map(() => latest(ctx.failed));
  arrays.forEach((array, number) => {
    const figure = matrixFigure(
      ctx,
      array,
      `positions-${array.kind}`,
      [array.kind, array.name].filter(Boolean).join(" · "),
    );
    panel.append(figure.element);
    only[number](array.at(), (values) => figure.show(values, ""));
  });
  made.main.append(panel);
  return made;
}

// Views that need no drawing of their own: what they are called, and what they show.
const OTHERS = {
  norms: [
    "Norms",
    "Each weight times the length of the vector it fetches: a token that is looked at hard but carries next to nothing fades, and what a head really takes stands out.",
  ],
  pooling: [
    "Pooling",
    "How much each token counts in the one vector that the whole text becomes: the weights of the attention that gathers them, which sum to 1 in every hop.",
  ],
  match: [
    "Why two texts match",
    "What each pair of tokens, one of either text, adds to the cosine of the two: the numbers sum to it with nothing left over, and below zero a pair speaks against the match.",
  ],
  senses: [
    "One word in its sentences",
    "The same word wherever it occurs, layer by layer: by itself it has one vector, and the farther apart two occurrences come to lie, the more differently the model reads them.",
  ],
  clusters: [
    "Clusters",
    "Texts in groups of like meaning, by the directions of their vectors: the map is a flat picture of many dimensions, so groups that overlap here may still lie apart.",
  ],
};

// Any other array: its last two axes as a matrix, with a slider for each axis before them; a single axis as bars.
function otherSection(ctx, view, arrays) {
  const known = Object.hasOwn(KNOWN, view);
  const plain = view.replace(/_/g, " ") + (known ? ", more" : "");
  const [title, ...explained] = Object.hasOwn(OTHERS, view) ? OTHERS[view] : [plain];
  const made = section(ctx, known ? `${view}-more` : view, title, explained, [known ? "" : view]);
  const single = ({ axes, shape }) => axes.length === 1 || (axes.length === 2 && shape[1] === 1);
  made.main.append(...arrays.map((array) => (single(array) ? otherBars(ctx, array) : otherPanel(ctx, array))));
  return made;
}

function otherPanel(ctx, array) {
  const figure = (array.axis("coordinate") ? mapFigure : matrixFigure)(ctx, array, array.title, array.said);
  const lead = array.axes.slice(0, -2);
  const chosen = lead.map(({ name, length }) => (name === "layer" ? length - 1 : 0));
  const only = latest(ctx.failed);
  const where = () => lead.map((axis, place) => `${axis.name} ${axis.entries[chosen[place]].text}`).join(", ");
  const show = () => only(array.at(...chosen), (values) => figure.show(values, where()));
  const sliders = lead.map(
    (axis, place) =>
      slider(axis, chosen[place], (value) => {
        chosen[place] = value;
        show();
      }).element,
  );
  show();
  return make("div", { class: "panel" }, figure.element, make("div", { class: "panel-side" }, ...sliders));
}

// Bars that have room for a name each, and letters of a name under a bar.
const NAMED_BARS = 9;
const BAR_LETTERS = 9;

function otherBars(ctx, array) {
  const [axis] = array.axes;
  const plot = chart(ctx, { label: array.said, name: array.title, widest: 640, height: 180 });
  const few = axis.length <= NAMED_BARS;
  const x = axis.entries.map((entry) => (axis.tokens && !few ? String(entry.index) : entry.text));
  const show = (values) =>
    plot.show({
      x,
      xName: axis.name,
      axis: axis.tokens ? axis : null,
      ticks: few ? NAMED_BARS : 6,
      letters: BAR_LETTERS,
      series: [{ name: array.name, values, form: "bars" }],
    });
  latest(ctx.failed)(array.at(), show);
  return plot.element;
}
