// The component: regardLook(element, data) draws a sheet into an element, and gives back how to take it away again.

const KEYS = [
  ["← → ↑ ↓", "the head before or after, the layer above or below"],
  ["r  e  d", "raw, effective or difference alone; again, or a, for all three"],
  ["k", "the next kind of attention"],
  ["s", "colours scaled to the chosen head, or the same for all heads"],
  ["t", "light or dark"],
  ["Tab", "the next control; in a matrix the arrows move from cell to cell, Enter pins"],
  ["Esc", "let go of what is pinned"],
  ["?", "this help"],
];

function regardLook(root, data, { bytes = 0 } = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const sheet = openSheet(data);
  const store = makeStore({
    kind: null,
    layer: 0,
    head: 0,
    measure: "all",
    own: false,
    depth: null,
    hover: null,
    pin: null,
    theme: dark.matches ? "dark" : "light",
  });
  const ctx = makeContext(root, sheet, store);
  root.classList.add("regard");
  root.dataset.theme = store.state.theme;
  store.on("theme", ({ theme }) => (root.dataset.theme = theme));
  const follow = () => store.set({ theme: dark.matches ? "dark" : "light" });
  dark.addEventListener("change", follow);
  const swapTheme = () => {
    dark.removeEventListener("change", follow);
    store.set({ theme: store.state.theme === "dark" ? "light" : "dark" });
  };
  const help = helpDialog();
  const nav = make("nav", { class: "nav", "aria-label": "views" });
  const views = make("div", { class: "views" });
  const bar = make("div", { class: "bar" }, nav, tokenStrip(ctx));
  new ResizeObserver(() => root.style.setProperty("--bar", `${bar.offsetHeight}px`)).observe(bar);
  root.replaceChildren(
    pageHeader(sheet, { swapTheme, help: () => help.showModal() }),
    bar,
    ctx.trouble,
    views,
    pageFooter(sheet, bytes),
    ctx.tip.element,
    ctx.live,
    help,
  );
  const keys = (event) => pressed(event, ctx, { swapTheme, help });
  document.addEventListener("keydown", keys);
  build(ctx, views, nav);
  return {
    destroy() {
      ctx.gone = true;
      document.removeEventListener("keydown", keys);
      dark.removeEventListener("change", follow);
      root.replaceChildren();
      for (const name of Object.keys(root.dataset)) delete root.dataset[name];
    },
  };
}

function makeContext(root, sheet, store) {
  const live = make("p", { class: "unseen", role: "status", "aria-live": "polite" });
  const trouble = make("p", { class: "trouble", role: "alert", hidden: true });
  const scrolling = [];
  return {
    sheet,
    store,
    live,
    trouble,
    scrolling,
    tip: makeTip(),
    near: makeNear(),
    say: (text) => (live.textContent = text),
    gone: false,
    // What is shown stands in attributes of the element, for whoever wants to know.
    tell(facts) {
      if (!this.gone) Object.assign(root.dataset, facts);
    },
    failed(error) {
      trouble.hidden = false;
      trouble.textContent = `A part of this page could not be drawn: ${error.message || error}. The browser may be too old, or the file damaged.`;
      console.error(error);
    },
    kindsOf: (...views) => [...new Set(views.flatMap((view) => sheet.of(view).map((array) => array.kind)))],
    kindIn: (kinds) => (kinds.includes(store.state.kind) ? store.state.kind : kinds[0]),
    weights: (kind) => sheet.find("attention", kind, "weights") || sheet.find("effective", kind, "weights"),
    scrolled: (box) => scrolling.forEach((other) => other !== box && (other.scrollTop = box.scrollTop)),
  };
}

// The first section at once, so that there is something to see; the others when the browser has time.
function build(ctx, views, nav) {
  const others = new Map();
  for (const array of ctx.sheet.others) others.set(array.view, [...(others.get(array.view) || []), array]);
  const makers = [
    () => attentionSection(ctx),
    () => identifiabilitySection(ctx),
    () => attributionSection(ctx),
    () => rolloutSection(ctx),
    () => gradientsSection(ctx),
    () => faithfulnessSection(ctx),
    () => similaritySection(ctx),
    () => positionsSection(ctx),
    ...[...others].map(
      ([view, arrays]) =>
        () =>
          otherSection(ctx, view, arrays),
    ),
  ];
  const idle = idleQueue(ctx.failed);
  function add(maker) {
    const made = ctx.gone ? null : maker();
    if (!made) return;
    views.append(made.element);
    nav.append(make("button", { type: "button", text: made.title, onclick: () => made.element.scrollIntoView() }));
  }
  add(makers[0]);
  for (const maker of makers.slice(1)) idle.add(() => add(maker));
  idle.add(() => {
    if (!views.children.length)
      views.append(make("p", { class: "explained", text: "There is nothing to see: no view was asked for." }));
    ctx.tell({ built: true });
  });
}

function pressed(event, ctx, { swapTheme, help }) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const { store, sheet } = ctx;
  if (
    event.target.closest &&
    event.target.closest("input, textarea, select, [contenteditable]") &&
    event.key !== "Escape"
  ) {
    if (event.key.startsWith("Arrow") || event.target.type !== "range") return;
  }
  const kinds = ctx.kindsOf("attention", "effective", "identifiability", "similarity");
  const kind = ctx.kindIn(kinds);
  const heads = sheet.every.find((array) => array.kind === kind && array.axis("layer") && array.axis("head"));
  const move = (layer, head) =>
    heads &&
    store.set({
      layer: clamp(Math.min(store.state.layer, heads.shape[0] - 1) + layer, heads.shape[0]),
      head: clamp(Math.min(store.state.head, heads.shape[1] - 1) + head, heads.shape[1]),
    });
  const only = (measure) => store.set({ measure: store.state.measure === measure ? "all" : measure });
  const actions = {
    ArrowLeft: () => move(0, -1),
    ArrowRight: () => move(0, 1),
    ArrowUp: () => move(-1, 0),
    ArrowDown: () => move(1, 0),
    r: () => only("raw"),
    e: () => only("effective"),
    d: () => only("difference"),
    a: () => store.set({ measure: "all" }),
    s: () => store.set({ own: !store.state.own }),
    k: () => store.set({ kind: kinds[(kinds.indexOf(kind) + 1) % kinds.length] || null }),
    t: swapTheme,
    "?": () => help.showModal(),
    Escape: () => store.set({ pin: null, hover: null }),
  };
  if (!Object.hasOwn(actions, event.key)) return;
  event.preventDefault();
  actions[event.key]();
}

// What was looked at and what the model made of it, above single facts.
const TEXTS = ["text", "pair", "target", "said"];

function pageHeader({ about }, { swapTheme, help }) {
  const texts = TEXTS
    .filter((name) => about[name])
    .map((name) => make("p", { class: `about-${name}`, dir: "auto", text: String(about[name]) }));
  const elsewhere = [...TEXTS, "difference", "merged", about.said ? "score" : null]; // what is said has it in words
  const facts = Object.entries(about).filter(([name]) => !elsewhere.includes(name));
  const line = facts.map(([name, value]) =>
    make(
      "span",
      { class: "fact" },
      make("span", { text: name }),
      make("b", { dir: "auto", text: typeof value === "number" ? written(value, 4) : String(value) }),
    ),
  );
  return make(
    "header",
    { class: "header" },
    make("div", { class: "brand" }, make("strong", { text: "regard" }), make("span", { text: "look" })),
    make("div", { class: "texts" }, ...texts, make("p", { class: "facts" }, ...line)),
    make(
      "div",
      { class: "buttons" },
      make("button", {
        type: "button",
        class: "plain",
        "data-do": "theme",
        title: "key t",
        text: "Light / dark",
        onclick: swapTheme,
      }),
      make("button", {
        type: "button",
        class: "plain",
        "data-do": "help",
        title: "key ?",
        text: "Keys",
        onclick: help,
      }),
    ),
  );
}

function pageFooter({ about, sides, every, digits }, bytes) {
  const said = [];
  if (typeof about.difference === "number") {
    said.push(
      `To see the weights, the model was run in a way that keeps them. Its logits then differ from those of the model as it really runs by at most ${written(about.difference, 2)}.`,
    );
  }
  if (about.merged === "words")
    said.push(
      "Pieces are merged to words: a word gives what its pieces give together, and receives what they receive on average.",
    );
  if (about.merged === "tokens") {
    const spaces = [...sides.values()].flat().some((token) => token.includes("▁"));
    said.push(`Tokens are the pieces the model sees${spaces ? "; ▁ stands for a space" : ""}.`);
  }
  const packed = every.filter((array) => array.code);
  const size = bytes ? `This page is ${bytesWritten(bytes)} and loads nothing from elsewhere. ` : "";
  said.push(
    size +
      (packed.length
        ? "Large arrays are kept on a square-root scale, so small numbers keep their digits: matrices over tokens to 8 bits, others to 16."
        : `Numbers are kept to ${digits} digits.`),
  );
  const errors = packed.map((array) => make("li", { text: `${array.title}: ${written(array.code.error, 2)}` }));
  const worst = packed.length ? packed.reduce((one, other) => (other.code.error > one.code.error ? other : one)) : null;
  const rounding =
    worst &&
    make(
      "details",
      {},
      make("summary", {
        text: `Largest rounding error: ${written(worst.code.error, 2)} (${worst.title}), at numbers near ${written(worst.code.limit, 2)}.`,
      }),
      make("ul", {}, ...errors),
    );
  return make(
    "footer",
    { class: "footer" },
    ...said.map((text) => make("p", { text })),
    rounding,
    make("p", { text: "Layers and heads are counted from 0." }),
  );
}

function helpDialog() {
  const rows = KEYS.map(([key, text]) =>
    make("div", { class: "help-row" }, make("kbd", { text: key }), make("span", { text })),
  );
  const dialog = make(
    "dialog",
    { class: "help", "aria-label": "keys" },
    make("h2", { text: "Keys" }),
    ...rows,
    make("p", {
      class: "explained",
      text: "Hovering a token marks it in every view; a click pins it, another lets it go.",
    }),
    make("button", { type: "button", class: "plain", text: "Close", onclick: () => dialog.close() }),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
