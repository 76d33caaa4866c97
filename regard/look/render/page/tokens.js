// Tokens: what is marked, the text along the top of the page, and the text coloured by what each token gives.

// A mark is a list of tokens, each as one that gives ("in"), receives ("out"), or both. Hovering marks, clicking pins.
function marks({ hover, pin }) {
  return [...(pin || []), ...(hover || [])];
}

function tokenMark(entry, role) {
  return entry.side === null ? [] : [{ side: entry.side, index: entry.index, role }];
}

function togglePin(ctx, mark) {
  const same = JSON.stringify(ctx.store.state.pin) === JSON.stringify(mark);
  ctx.store.set({ pin: same || !mark.length ? null : mark });
}

// The places along an axis that are marked.
function markedPositions(state, axis) {
  const found = new Set();
  for (const { side, index, role } of marks(state)) {
    const position = axis.positions.get(`${side} ${index}`);
    const meant = role === "both" || axis.role === "both" || role === axis.role;
    if (position !== undefined && meant) found.add(position);
  }
  return [...found];
}

function tokenStrip(ctx) {
  const rows = [...ctx.viewData.sides].map(([side, tokens]) => sideRow(ctx, side, tokens));
  let lit = [];
  ctx.store.on("hover pin", (state) => {
    for (const button of lit) button.classList.remove("on", "pinned");
    lit = [];
    for (const { side, index } of marks(state)) {
      const row = rows.find((each) => each.side === side);
      if (!row || !row.buttons[index]) continue;
      row.buttons[index].classList.add("on");
      keepInView(row.list, row.buttons[index]);
      lit.push(row.buttons[index]);
    }
    for (const { side, index } of state.pin || []) {
      const row = rows.find((each) => each.side === side);
      if (row && row.buttons[index]) row.buttons[index].classList.add("pinned");
    }
  });
  return make("div", { class: "strip" }, ...rows.map((row) => row.element));
}

function sideRow(ctx, side, tokens) {
  const mark = (index) => [{ side, index, role: "both" }];
  const buttons = tokens.map((token, index) =>
    make("button", {
      type: "button",
      class: "token",
      dir: "auto",
      tabindex: index ? -1 : 0,
      "data-index": index,
      "aria-label": `${side} token ${index}: ${visible(token)}`,
      text: visible(token),
    }),
  );
  const list = make("div", { class: "strip-tokens", role: "group", "aria-label": `tokens of the ${side}` }, ...buttons);
  const tokenAt = (event) => event.target.closest("[data-index]");
  const hover = (event) => tokenAt(event) && ctx.store.set({ hover: mark(Number(tokenAt(event).dataset.index)) });
  const leave = () => ctx.store.set({ hover: null });
  list.addEventListener("pointerover", hover);
  list.addEventListener("focusin", hover);
  list.addEventListener("pointerleave", leave);
  list.addEventListener("focusout", leave);
  list.addEventListener("click", (event) => tokenAt(event) && togglePin(ctx, mark(Number(tokenAt(event).dataset.index))));
  list.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step || !tokenAt(event)) return;
    event.preventDefault();
    event.stopPropagation();
    const next = buttons[Number(tokenAt(event).dataset.index) + step];
    if (!next) return;
    tokenAt(event).tabIndex = -1;
    next.tabIndex = 0;
    next.focus({ preventScroll: true });
  });
  const element = make("div", { class: "strip-row" }, make("span", { class: "strip-side", text: side }), list);
  return { side, buttons, list, element };
}

// Scrolls a list, and nothing around it, until a token in it shows; the list is what holds its place.
function keepInView(list, child) {
  const { offsetTop: top, offsetLeft: left, offsetHeight: height, offsetWidth: width } = child;
  const below = top < list.scrollTop || top + height > list.scrollTop + list.clientHeight;
  const beside = left < list.scrollLeft || left + width > list.scrollLeft + list.clientWidth;
  if (below) list.scrollTop = top - 1;
  if (beside) list.scrollLeft = left - list.clientWidth / 3;
}

// The inputs as text, each the stronger in colour the more it gives to one output.
function heatText(ctx, axis) {
  const mark = (index) => tokenMark(axis.entries[index], axis.role);
  const spans = axis.entries.map((entry, index) =>
    make("span", { class: "heat-token", dir: "auto", "data-index": index, text: visible(entry.text) }),
  );
  const groups = axis.over.map((side) =>
    make("div", { class: "heat-side" }, ...spans.filter((_, index) => axis.entries[index].side === side)),
  );
  const title = make("p", { class: "heat-title" });
  const text = make("div", { class: "heat-text" }, ...groups);
  const element = make("div", { class: "heat" }, title, text);
  let numbers = null;
  text.addEventListener("pointermove", (event) => {
    const span = event.target.closest("[data-index]");
    if (!span || !numbers) return;
    const index = Number(span.dataset.index);
    ctx.store.set({ hover: mark(index) });
    ctx.tip.show(
      event.clientX,
      event.clientY,
      [quoted(axis.entries[index].text)],
      [["gives", formatNumber(numbers[index])]],
    );
  });
  text.addEventListener("pointerleave", () => {
    ctx.store.set({ hover: null });
    ctx.tip.hide();
  });
  text.addEventListener("click", (event) => {
    const span = event.target.closest("[data-index]");
    if (span) togglePin(ctx, mark(Number(span.dataset.index)));
  });
  let lit = [];
  function light(state) {
    for (const index of lit) spans[index].classList.remove("on");
    lit = markedPositions(state, axis);
    for (const index of lit) spans[index].classList.add("on");
  }
  ctx.store.on("hover pin", (state) => ctx.near(element, "mark", () => light(state)));
  function show(heading, values, limit) {
    numbers = values;
    title.replaceChildren(...heading);
    ctx.near(element, "colour", () => colour(values, limit));
  }
  function colour(values, limit) {
    const scale = scaleOf(ctx.store.state.theme);
    spans.forEach((span, index) => {
      const value = Number.isFinite(values[index]) ? values[index] : 0;
      span.style.backgroundColor = scale.css(value, limit);
      span.style.color = scale.textColour(value, limit);
    });
  }
  return { element, show };
}
