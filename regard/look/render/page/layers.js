// Sections of inputs by outputs: the summary, gradients, and layer by layer attribution and rollout.

function summarySection(ctx) {
  return layeredSection(ctx, "summary", "Summary", [], [["importance", "Importance of each input"]]);
}

function attributionSection(ctx) {
  return layeredSection(
    ctx,
    "attribution",
    "Attribution",
    [
      "The contribution of each input token to each output of a layer: how strongly the output responds to a small change of the input, through the whole model, not attention alone. Each row sums to 1. It measures how much, not in which direction.",
    ],
    [
      ["contribution", "Contribution of each input"],
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
      "Attention weights multiplied through the layers, with half of every token passed on by the residual connection. Values, norms and feed-forward layers are ignored; where rollout and attribution disagree, attribution covers more of the model.",
    ],
    [["rollout", "Rollout"]],
  );
}

function gradientsSection(ctx) {
  const [some] = ctx.viewData.of("gradients");
  if (!some) return null;
  const output = some.axis("output");
  return layeredSection(
    ctx,
    "gradients",
    "Gradients",
    [
      `The inputs that raise ${explainedQuantity(output)} (blue) and those that lower it (orange). Gradient × input uses the gradient at one point and misses saturated inputs; integrated gradients follow a straight path from zero vectors to the text and sum to the whole change.`,
      ...(output.predictsNext ? ["A decoder's row is named by the token read and the token written after it; it explains the latter."] : []),
    ],
    [
      ["integrated_gradients", "Integrated gradients"],
      ["gradient_x_input", "Gradient × input"],
    ],
  );
}

// The quantity that gradients explain: the log-probability of tokens, labels or one class, or a score.
function explainedQuantity({ tokens, over, entries }) {
  if (!tokens && entries[0].text === "score") return "the score";
  const predicted = tokens ? (over.includes("tagged") ? "label" : "token") : "class";
  return `the log-probability of the predicted ${predicted}`;
}

// Matrices, layer by layer with a slider, and the inputs of one output as coloured text.
function layeredSection(ctx, view, title, explained, names) {
  const stacks = [...new Set(ctx.viewData.of(view).map((array) => array.kind))].filter((stack) =>
    names.some(([name]) => ctx.viewData.find(view, stack, name)),
  );
  if (!stacks.length) return null;
  const built = section(ctx, view, title, explained);
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
  built.side.append(...(choose ? [choose.element] : []), ...panels.map((panel) => panel.side));
  built.main.append(...panels.map((panel) => panel.main));
  function pick(stack) {
    if (choose) choose.mark(stack);
    panels.forEach((panel, number) => (panel.side.hidden = panel.main.hidden = stacks[number] !== stack));
  }
  pick(stacks[stacks.length - 1]);
  return built;
}

function layeredPanel(ctx, view, stack, names) {
  const arrays = names.map(([name, title]) => [ctx.viewData.find(view, stack, name), title]).filter(([array]) => array);
  const [first] = arrays[0];
  const layers = first.shape.length > 2 ? first.shape[0] : 1;
  const depthOf = (state) => clamp(state.depth === null ? layers - 1 : state.depth, layers);
  const layerAxis = first.axis("layer");
  const slide = layerAxis && slider(layerAxis, depthOf(ctx.store.state), (depth) => ctx.store.set({ depth }));
  const layerLabel = () => (layerAxis ? `layer ${layerAxis.entries[depthOf(ctx.store.state)].text}` : "");
  const extra = view === "attribution" ? selfContributionChart(ctx, stack, layerAxis, depthOf) : null;
  const figures = arrays.map(([array, title]) => matrixFigure(ctx, array, `${view}-${array.name}`, title));
  const { rowAxis: outputs, columnAxis: inputs } = orient(first, []);
  const heat = heatText(ctx, inputs);
  const gaps = convergenceNote(ctx, view);
  const side = make("div", { class: "panel-side" }, slide && slide.element, extra && extra.element);
  const main = make(
    "div",
    { class: "panel", "data-panel": view, "data-stack": stack },
    ...figures.map((figure) => figure.element),
    make("div", { class: "heat-holder" }, heat.element, gaps.element),
  );
  const showLatest = keepLatest(ctx.failed);
  let output = focusIndex(ctx, outputs);
  let current = null;

  function showHeat() {
    if (!current) return;
    const { values, down, right } = orient(first, current);
    const given = Float32Array.from({ length: inputs.length }, (_, position) => values[output * down + position * right]);
    const after = layerAxis ? ` after ${layerLabel()}` : "";
    heat.show(
      [view === "summary" ? "Importance of each input to " : "Inputs of ", quoted(outputs.entries[output].text), ` (${outputs.entries[output].index})${after}`],
      given,
      largest(given) || 1,
    );
    gaps.show(output);
  }

  function show(state) {
    const depth = depthOf(state);
    if (slide) slide.mark(depth);
    main.dataset.layer = depth;
    showLatest(Promise.all(arrays.map(([array]) => (layerAxis ? array.read(depth) : array.read()))), (found) => {
      current = found[0];
      figures.forEach((figure, number) => figure.show(found[number], layerLabel()));
      showHeat();
    });
    if (extra) extra.show(state);
  }
  ctx.store.on("depth", show);
  ctx.store.on("theme", showHeat);
  ctx.store.on("hover pin", (state) => {
    const [position] = markedPositions({ hover: state.hover, pin: null }, outputs).concat(
      markedPositions({ hover: null, pin: state.pin }, outputs),
    );
    if (position === undefined || position === output) return;
    output = position;
    showHeat();
  });
  show(ctx.store.state);
  return { side, main };
}

// The entry of an axis that is shown first; the last one where none is in focus.
function focusIndex({ viewData: { focus } }, axis) {
  const index = axis.over.length === 1 ? focus.tokens[axis.over[0]] : undefined;
  return clamp(index === undefined ? axis.length - 1 : index, axis.length);
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
      [array.name.replace(/_/g, " "), array.view === "scores" && Number.isNaN(value) ? "masked" : formatNumber(value, digits)],
    ],
  });
  const element = make(
    "figure",
    { class: "measure" },
    make("figcaption", {}, make("h4", { text: title })),
    matrix.element,
  );
  function show(values, label) {
    where = label;
    matrix.show(orient(array, values), array.limit, `${title} ${label}`.trim());
    legend.show(array.limit, array.signed);
  }
  ctx.store.on("theme", () => legend.show(array.limit, array.signed));
  return { element, show };
}

// The contribution of each token to its own output, layer by layer, and the fraction of tokens dominated by another.
function selfContributionChart(ctx, stack, layerAxis, depthOf) {
  const [own, dominated_fraction] = ["self_contribution", "dominated_fraction"].map((name) => ctx.viewData.find("attribution", stack, name));
  if (!own && !dominated_fraction) return null;
  const plot = chart(ctx, {
    label: "Contribution of a token to its own output",
    name: `own-${stack}`,
    widest: 400,
    height: 180,
    named: 62,
  });
  const note = make("p", { class: "explained" });
  let read = null;
  const showLatest = keepLatest(ctx.failed);
  function show(state) {
    if (!read) read = Promise.all([own ? own.read() : null, dominated_fraction ? dominated_fraction.read() : null]);
    showLatest(read, ([shares, dominated]) => {
      const series = [];
      if (shares) {
        const rows = layerAxis.entries.map((_, layer) =>
          [...shares.subarray(layer * own.shape[1], (layer + 1) * own.shape[1])].sort((a, b) => a - b),
        );
        const quantile = (part) => rows.map((row) => row[Math.round(part * (row.length - 1))]);
        series.push(
          { name: "", form: "band", values: [...quantile(0), ...quantile(1)], look: "series-0" },
          { name: "median", values: quantile(0.5), look: "series-0" },
        );
      }
      if (dominated) series.push({ name: "dominated", values: dominated, look: "series-1" });
      plot.show({
        x: layerAxis.entries.map((entry) => entry.text),
        xName: "layer",
        low: 0,
        high: 1,
        marker: depthOf(state),
        series,
      });
      const depth = depthOf(state);
      note.textContent = dominated
        ? `After layer ${layerAxis.entries[depth].text}, ${percent(dominated[depth])} of the outputs get more from another input than from their own.`
        : "";
    });
  }
  return { element: make("div", {}, plot.element, note), show };
}

function convergenceNote(ctx, view) {
  const gap = view === "gradients" ? ctx.viewData.find("gradients", "", "convergence_delta") : null;
  const element = make("p", { class: "explained" });
  const showLatest = keepLatest(ctx.failed);
  function show(output) {
    if (gap)
      showLatest(
        gap.read(),
        (gaps) =>
          (element.textContent = `Integrated gradients miss the change they should sum to by ${formatNumber(gaps[output])} here (the convergence delta).`),
      );
  }
  return { element, show };
}
