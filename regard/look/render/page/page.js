// The component: regardLook(element, data) renders view data into an element and returns { destroy }.

const KEYS = [
  ["← → ↑ ↓", "previous or next head, layer above or below"],
  ["r  e  d", "raw, effective or difference only; again, or a, for all three"],
  ["k", "next kind of attention"],
  ["s", "colour scale of the chosen head, or one scale for all heads"],
  ["t", "light or dark"],
  ["Tab", "next control; in a matrix the arrows move from cell to cell, Enter pins"],
  ["Esc", "clear the pin"],
  ["?", "this help"],
];

function regardLook(root, data, { bytes = 0 } = {}) {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const viewData = openViewData(data);
  const store = makeStore({
    kind: viewData.focus.kind || null,
    layer: viewData.focus.layer,
    head: viewData.focus.head,
    measure: "all",
    own: false,
    depth: null,
    hover: null,
    pin: null,
    theme: dark.matches ? "dark" : "light",
  });
  const ctx = makeContext(root, viewData, store);
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
    pageHeader(viewData, { swapTheme, help: () => help.showModal() }),
    bar,
    ctx.trouble,
    views,
    pageFooter(viewData, bytes),
    ctx.tip.element,
    ctx.live,
    help,
  );
  const keys = (event) => handleKey(event, ctx, { swapTheme, help });
  document.addEventListener("keydown", keys);
  build(ctx, views, nav);
  return {
    destroy() {
      ctx.destroyed = true;
      document.removeEventListener("keydown", keys);
      dark.removeEventListener("change", follow);
      root.replaceChildren();
      for (const name of Object.keys(root.dataset)) delete root.dataset[name];
    },
  };
}

function makeContext(root, viewData, store) {
  const live = make("p", { class: "unseen", role: "status", "aria-live": "polite" });
  const trouble = make("p", { class: "trouble", role: "alert", hidden: true });
  const scrolling = [];
  return {
    viewData,
    store,
    live,
    trouble,
    scrolling,
    tip: makeTip(),
    near: makeVisibilityScheduler(),
    say: (text) => (live.textContent = text),
    destroyed: false,
    // The selection is published in data attributes of the element, for tests and embedding pages.
    publish(facts) {
      if (!this.destroyed) Object.assign(root.dataset, facts);
    },
    failed(error) {
      trouble.hidden = false;
      trouble.textContent = `A part of this page could not be drawn: ${error.message || error}. The browser may be too old, or the file damaged.`;
      console.error(error);
    },
    opens: (id) => opensAtStart(viewData, id),
    kindsOf: (...views) => [...new Set(views.flatMap((view) => viewData.of(view).map((array) => array.kind)))],
    kindIn: (kinds) => (kinds.includes(store.state.kind) ? store.state.kind : kinds[0]),
    weights: (kind) => viewData.find("attention", kind, "weights") || viewData.find("effective", kind, "weights"),
    scrolled: (box) => scrolling.forEach((other) => other !== box && (other.scrollTop = box.scrollTop)),
  };
}

const OPEN_SECTIONS = ["summary", "attention"];

// The answer is open and details are folded, unless the page holds nothing but details or a view or two.
function opensAtStart({ arrays }, id) {
  const views = new Set(arrays.map((array) => array.view));
  return OPEN_SECTIONS.includes(id) || views.size <= 2 || !OPEN_SECTIONS.some((view) => views.has(view));
}

// The first section at once, so that there is something to see; the others when the browser is idle.
function build(ctx, views, nav) {
  const generic = new Map();
  for (const array of ctx.viewData.genericArrays) generic.set(array.view, [...(generic.get(array.view) || []), array]);
  const builders = [
    () => summarySection(ctx),
    () => faithfulnessSection(ctx),
    () => attentionSection(ctx),
    () => gradientsSection(ctx),
    () => attributionSection(ctx),
    () => rolloutSection(ctx),
    () => identifiabilitySection(ctx),
    () => alternativeSection(ctx),
    () => similaritySection(ctx),
    () => positionsSection(ctx),
    ...[...generic].map(
      ([view, arrays]) =>
        () =>
          genericSection(ctx, view, arrays),
    ),
  ];
  const idle = idleQueue(ctx.failed);
  function add(builder) {
    const built = ctx.destroyed ? null : builder();
    if (!built) return;
    views.append(built.element);
    const go = () => {
      built.element.open = true;
      built.element.scrollIntoView();
    };
    nav.append(make("button", { type: "button", text: built.title, onclick: go }));
  }
  while (builders.length && !views.children.length) add(builders.shift());
  for (const builder of builders) idle.add(() => add(builder));
  idle.add(() => {
    if (!views.children.length)
      views.append(make("p", { class: "explained", text: "Nothing to show: no view was asked for." }));
    ctx.publish({ built: true });
  });
}

function handleKey(event, ctx, { swapTheme, help }) {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || help.open) return;
  const { store, viewData } = ctx;
  if (
    event.target.closest &&
    event.target.closest("input, textarea, select, [contenteditable]") &&
    event.key !== "Escape"
  ) {
    if (event.key.startsWith("Arrow") || event.target.type !== "range") return;
  }
  const kinds = ctx.kindsOf("attention", "effective", "identifiability", "similarity", "alternative");
  const kind = ctx.kindIn(kinds);
  const heads = viewData.arrays.find((array) => array.kind === kind && array.axis("layer") && array.axis("head"));
  const move = (layer, head) =>
    heads &&
    store.set({
      layer: clamp(Math.min(store.state.layer, heads.shape[0] - 1) + layer, heads.shape[0]),
      head: clamp(Math.min(store.state.head, heads.shape[1] - 1) + head, heads.shape[1]),
    });
  const showLatest = (measure) => store.set({ measure: store.state.measure === measure ? "all" : measure });
  const actions = {
    ArrowLeft: () => move(0, -1),
    ArrowRight: () => move(0, 1),
    ArrowUp: () => move(-1, 0),
    ArrowDown: () => move(1, 0),
    r: () => showLatest("raw"),
    e: () => showLatest("effective"),
    d: () => showLatest("difference"),
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

// The texts and the prediction, above single facts.
const TEXT_FACTS = ["text", "pair", "target", "prediction"];

function pageHeader({ about }, { swapTheme, help }) {
  const texts = TEXT_FACTS
    .filter((name) => about[name])
    .map((name) => make("p", { class: `about-${name}`, dir: "auto", text: String(about[name]) }));
  const elsewhere = [...TEXT_FACTS, "difference", "merged", "map_share", about.prediction ? "score" : null]; // the prediction in words includes the score
  const facts = Object.entries(about).filter(([name]) => !elsewhere.includes(name));
  const line = facts.map(([name, value]) =>
    make(
      "span",
      { class: "fact" },
      make("span", { text: name }),
      make("b", { dir: "auto", text: typeof value === "number" ? formatNumber(value, 4) : String(value) }),
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

function pageFooter({ about, sides, arrays, digits }, bytes) {
  const paragraphs = [];
  if (typeof about.difference === "number") {
    paragraphs.push(
      `The weights were recorded in a pass with unfused attention; its logits differ from those of the model as it normally runs by at most ${formatNumber(about.difference, 2)}.`,
    );
  }
  if (about.merged === "words")
    paragraphs.push(
      "Subwords are merged to words: as inputs and keys they are summed, as outputs and queries averaged.",
    );
  if (about.merged === "tokens") {
    const spaces = [...sides.values()].flat().some((token) => token.includes("▁"));
    paragraphs.push(`Tokens are the subwords the model reads${spaces ? "; ▁ stands for a space" : ""}.`);
  }
  const packed = arrays.filter((array) => array.code);
  const size = bytes ? `This page is ${formatBytes(bytes)} and loads nothing from elsewhere. ` : "";
  paragraphs.push(
    size +
      (packed.length
        ? "Large arrays are quantised on a square-root scale, so that small numbers keep their digits: matrices over tokens to 8 bits, others to 16."
        : `Numbers are stored to ${digits} digits.`),
  );
  const errors = packed.map((array) => make("li", { text: `${array.title}: ${formatNumber(array.code.error, 2)}` }));
  const worst = packed.length ? packed.reduce((one, other) => (other.code.error > one.code.error ? other : one)) : null;
  const rounding =
    worst &&
    make(
      "details",
      {},
      make("summary", {
        text: `Largest rounding error: ${formatNumber(worst.code.error, 2)} (${worst.title}), at numbers near ${formatNumber(worst.code.limit, 2)}.`,
      }),
      make("ul", {}, ...errors),
    );
  return make(
    "footer",
    { class: "footer" },
    ...paragraphs.map((text) => make("p", { text })),
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
      text: "Hovering over a token marks it in every view; a click pins it, a second click releases it.",
    }),
    make("button", { type: "button", class: "plain", text: "Close", onclick: () => dialog.close() }),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  return dialog;
}
