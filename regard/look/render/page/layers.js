// Views that go through the layers, from inputs to outputs: attribution, rollout; and gradients, which have but one.

function attributionSection(ctx) {
  return layeredSection(
    ctx,
    "attribution",
    "Attribution",
    [
      "How much of each input token is in each output of a layer: how strongly the output answers to a small change of the input, through everything the model does, not attention alone. Each row sums to 1. It says how much, not which way.",
    ],
    [
      ["share", "Share of each input"],
      ["error", "Standard error of the estimate"],
    ],
  );
}

function rolloutSection(ctx) {
  return layeredSection(
    ctx,
    "rollout",
    "Rollout",
    [
      "Attention multiplied through the layers, half of every token going on as it is. It takes attention for all there is: values, norms and feed-forward layers are left out. Where the two disagree, attribution has seen more of the model.",
    ],
    [["rollout", "Rollout"]],
  );
}

function gradientsSection(ctx) {
  const [some] = ctx.sheet.of("gradients");
  if (!some) return null;
  const output = some.axis("output");
  return layeredSection(
    ctx,
    "gradients",
    "Gradients",
    [
      `Which inputs raise ${explainedAt(output)} (blue) and which lower it (orange). Gradient × input looks at one point only, and may miss what is saturated; integrated gradients follow the way from nothing to the text, and should add up to the whole change.`,
      ...(output.ahead ? ["In a decoder the row of a token explains the token that comes after it."] : []),
    ],
    [
      ["integrated_gradients", "Integrated gradients"],
      ["gradient_x_input", "Gradient × input"],
    ],
  );
}

// What gradients explain at their outputs: tokens, labels of words, one class, or one score.
function explainedAt({ tokens, over, entries }) {
  if (!tokens && entries[0].text === "score") return "the score";
  const predicted = tokens ? (over.includes("tagged") ? "label" : "token") : "class";
  return `the log-probability of the predicted ${predicted}`;
}

// Matrices layer by layer with a slider, and what went into one output as coloured text.
function layeredSection(ctx, view, title, explained, names) {
  const stacks = [...new Set(ctx.sheet.of(view).map((array) => array.kind))].filter((stack) =>
    names.some(([name]) => ctx.sheet.find(view, stack, name)),
  );
  if (!stacks.length) return null;
  const made = section(ctx, view, title, explained);
  const panels = stacks.map((stack) => layeredPanel(ctx, view, stack, names));
  const choose =
    stacks.length > 1
      ? segments(
          "stack",
          stacks.map((value) => ({ value, text: value })),
          null,
          pick,
        )
      : null;
  made.side.append(...(choose ? [choose.element] : []), ...panels.map((panel) => panel.side));
  made.main.append(...panels.map((panel) => panel.main));
  function pick(stack) {
    if (choose) choose.mark(stack);
    panels.forEach((panel, number) => (panel.side.hidden = panel.main.hidden = stacks[number] !== stack));
  }
  pick(stacks[stacks.length - 1]);
  return made;
}

function layeredPanel(ctx, view, stack, names) {
  const arrays = names.map(([name, title]) => [ctx.sheet.find(view, stack, name), title]).filter(([array]) => array);
  const [first] = arrays[0];
  const layers = first.shape.length > 2 ? first.shape[0] : 1;
  const depthOf = (state) => clamp(state.depth === null ? layers - 1 : state.depth, layers);
  const layerAxis = first.axis("layer");
  const slide = layerAxis && slider(layerAxis, depthOf(ctx.store.state), (depth) => ctx.store.set({ depth }));
  const layerSaid = () => (layerAxis ? `layer ${layerAxis.entries[depthOf(ctx.store.state)].text}` : "");
  const extra = view === "attribution" ? ownShare(ctx, stack, layerAxis, depthOf) : null;
  const figures = arrays.map(([array, title]) => matrixFigure(ctx, array, `${view}-${array.name}`, title));
  const { rowAxis: outputs, columnAxis: inputs } = oriented(first, []);
  const heat = heatText(ctx, inputs);
  const gaps = gapSaid(ctx, view);
  const side = make("div", { class: "panel-side" }, slide && slide.element, extra && extra.element);
  const main = make(
    "div",
    { class: "panel", "data-panel": view, "data-stack": stack },
    ...figures.map((figure) => figure.element),
    make("div", { class: "heat-holder" }, heat.element, gaps.element),
  );
  const only = latest(ctx.failed);
  let output = outputs.length - 1;
  let current = null;

  function showHeat() {
    if (!current) return;
    const { values, down, right } = oriented(first, current);
    const given = Float32Array.from({ length: inputs.length }, (_, place) => values[output * down + place * right]);
    const after = layerAxis ? ` after ${layerSaid()}` : "";
    heat.show(
      ["What goes into ", quoted(outputs.entries[output].text), ` (${outputs.entries[output].index})${after}`],
      given,
      largest(given) || 1,
    );
    gaps.show(output);
  }

  function show(state) {
    const depth = depthOf(state);
    if (slide) slide.mark(depth);
    main.dataset.layer = depth;
    only(Promise.all(arrays.map(([array]) => (layerAxis ? array.at(depth) : array.at()))), (found) => {
      current = found[0];
      figures.forEach((figure, number) => figure.show(found[number], layerSaid()));
      showHeat();
    });
    if (extra) extra.show(state);
  }
  ctx.store.on("depth", show);
  ctx.store.on("theme", showHeat);
  ctx.store.on("hover pin", (state) => {
    const [place] = markedPlaces({ hover: state.hover, pin: null }, outputs).concat(
      markedPlaces({ hover: null, pin: state.pin }, outputs),
    );
    if (place === undefined || place === output) return;
    output = place;
    showHeat();
  });
  show(ctx.store.state);
  return { side, main };
}

function matrixFigure(ctx, array, name, title) {
  let where = "";
  const digits = array.code ? 2 : 3;
  const legend = makeLegend(ctx);
  const matrix = matrixView(ctx, {
    name,
    tallest: 560,
    legend: legend.element,
    lines: (row, column, value) => [
      ...(where ? [["at", where]] : []),
      [array.name.replace(/_/g, " "), written(value, digits)],
    ],
  });
  const element = make(
    "figure",
    { class: "measure" },
    make("figcaption", {}, make("h4", { text: title })),
    matrix.element,
  );
  function show(values, said) {
    where = said;
    matrix.show(oriented(array, values), array.limit, `${title} ${said}`.trim());
    legend.show(array.limit, array.signed);
  }
  ctx.store.on("theme", () => legend.show(array.limit, array.signed));
  return { element, show };
}

// How much of each token is still itself, layer by layer, and how many tokens are more of another.
function ownShare(ctx, stack, layerAxis, depthOf) {
  const [own, strayed] = ["own_share", "strayed"].map((name) => ctx.sheet.find("attribution", stack, name));
  if (!own && !strayed) return null;
  const plot = chart(ctx, {
    label: "How much of a token stays itself",
    name: `own-${stack}`,
    widest: 400,
    height: 180,
    named: 62,
  });
  const said = make("p", { class: "explained" });
  let read = null;
  const only = latest(ctx.failed);
  function show(state) {
    if (!read) read = Promise.all([own ? own.at() : null, strayed ? strayed.at() : null]);
    only(read, ([shares, stray]) => {
      const series = [];
      if (shares) {
        const rows = layerAxis.entries.map((_, layer) =>
          [...shares.subarray(layer * own.shape[1], (layer + 1) * own.shape[1])].sort((a, b) => a - b),
        );
        const at = (part) => rows.map((row) => row[Math.round(part * (row.length - 1))]);
        series.push(
          { name: "", form: "band", values: [...at(0), ...at(1)], look: "series-0" },
          { name: "median", values: at(0.5), look: "series-0" },
        );
      }
      if (stray) series.push({ name: "strayed", values: stray, look: "series-1" });
      plot.show({
        x: layerAxis.entries.map((entry) => entry.text),
        xName: "layer",
        low: 0,
        high: 1,
        marker: depthOf(state),
        series,
      });
      const depth = depthOf(state);
      said.textContent = stray
        ? `After layer ${layerAxis.entries[depth].text}, ${percent(stray[depth])} of the tokens owe more to another token than to themselves.`
        : "";
    });
  }
  return { element: make("div", {}, plot.element, said), show };
}

function gapSaid(ctx, view) {
  const gap = view === "gradients" ? ctx.sheet.find("gradients", "", "gap") : null;
  const element = make("p", { class: "explained" });
  const only = latest(ctx.failed);
  function show(output) {
    if (gap)
      only(
        gap.at(),
        (gaps) =>
          (element.textContent = `The steps on the way leave a gap of ${written(gaps[output])} here: by so much integrated gradients miss the change they should add up to.`),
      );
  }
  return { element, show };
}
