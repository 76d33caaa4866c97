// The section of alternative attention: the model's weights of a head beside others that give the same output.

function alternativeSection(ctx) {
  const kinds = ctx.kindsOf("alternative");
  if (!kinds.length) return null;
  const built = section(ctx, "alternative", "Another valid attention", [
    "Other weights that are also non-negative, sum to 1 in each row and give this head exactly the same output: as far from the model's own as the search found. Where they differ much, the weights of the model explain its output no better than these do.",
    "They exist only for queries with more keys than the rank of the values plus one; elsewhere both maps are the same.",
  ]);
  built.side.append(kindChooser(ctx, kinds).element);
  const find = (name) => ctx.viewData.find("alternative", ctx.kindIn(kinds), name);
  const heading = make("h3", { class: "chosen" });
  const verdict = make("p", { class: "verdict" });
  const columns = ["weights", "alternative"].map((name) => alternativeColumn(ctx, name, find));
  const row = make("div", { class: "measures" }, ...columns.map((column) => column.element));
  row.style.setProperty("--columns", columns.length);
  built.main.append(heading, verdict, row);
  const showLatest = keepLatest(ctx.failed);

  function show({ layer, head }) {
    const [weights, other, distance] = ["weights", "alternative", "distance"].map(find);
    const [l, h] = [clamp(layer, weights.shape[0]), clamp(head, weights.shape[1])];
    heading.textContent = `${ctx.kindIn(kinds)} · ${headLabel(weights, l, h)}`;
    showLatest(Promise.all([weights, other, distance].map((array) => array.read(l, h))), ([own, found, distances]) => {
      verdict.textContent = largest(distances)
        ? `Total variation distance: ${formatNumber(mean([...distances]))} on average, ${formatNumber(largest(distances))} at most.`
        : "Only the model's own weights are valid in this head.";
      const limit = Math.max(largest(own), largest(found));
      columns.forEach((column) => column.show([own, found], limit, heading.textContent));
    });
  }
  ctx.store.on("kind layer head", show);
  show(ctx.store.state);
  return built;
}

const ALTERNATIVE_COLUMNS = {
  weights: ["Model", "The weights as the model used them."],
  alternative: ["Alternative", "Other weights with the same output."],
};

function alternativeColumn(ctx, name, find) {
  const [title, explained] = ALTERNATIVE_COLUMNS[name];
  const legend = makeLegend(ctx);
  let current = null;
  const lines = (row, column) => {
    const position = row * find(name).shape[3] + column;
    return ["weights", "alternative"].map((each, number) => [
      ALTERNATIVE_COLUMNS[each][0].toLowerCase(),
      formatNumber(current.values[number][position], find(name).code ? 2 : 3),
    ]);
  };
  const matrix = matrixView(ctx, { name: `alternative-${name}`, lines, legend: legend.element });
  const caption = make("figcaption", {}, make("h4", { text: title }), make("p", { text: explained }));
  const element = make("figure", { class: "measure" }, caption, matrix.element);
  function show(values, limit, where) {
    current = { values, limit };
    matrix.show(orient(find(name), values[name === "weights" ? 0 : 1]), limit, `${title} attention, ${where}`);
    legend.show(limit, false);
  }
  ctx.store.on("theme", () => current && legend.show(current.limit, false));
  return { element, show };
}
