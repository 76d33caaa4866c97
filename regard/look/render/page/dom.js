// Elements, numbers as text, shared state, the tooltip. Text of the user is only ever set as text.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, options = {}, ...children) {
  return applyOptions(document.createElement(tag), options, children);
}

function draw(tag, options = {}, ...children) {
  return applyOptions(document.createElementNS(SVG, tag), options, children);
}

function applyOptions(node, options, children) {
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A number to a few digits, with a real minus sign.
function formatNumber(value, digits = 3) {
  if (!Number.isFinite(value)) return "no number";
  if (Number.isInteger(value) && Math.abs(value) < 1e5) return String(value).replace("-", "\u2212");
  const size = Math.abs(value);
  const positions = digits - 1 - Math.floor(Math.log10(size));
  const text =
    size < 1e-3 || size >= 1e5 ? value.toExponential(digits - 1) : value.toFixed(Math.max(0, Math.min(positions, 6)));
  return text.replace(/-/g, "\u2212");
}

// A number on a scale, as short as it can be said.
function formatTick(value) {
  return String(Number(value.toPrecision(2))).replace("-", "\u2212");
}

function percent(share) {
  return share > 0 && share < 0.01 ? "less than 1 %" : `${Math.round(100 * share)} %`;
}

function formatBytes(count) {
  return count < 1e6 ? `${Math.ceil(count / 1000)} kB` : `${(count / 1e6).toFixed(1)} MB`;
}

// A token as a reader can see it: what would be blank gets a sign.
function visible(token) {
  const signs = { "\n": "↵", "\r": "␍", "\t": "⇥", " ": "␣", "\u00a0": "␣" };
  if (token === "") return "∅";
  return token.trim() === ""
    ? Array.from(token, (sign) => signs[sign] || "␣").join("")
    : token.replace(/[\n\r\t]/g, (sign) => signs[sign]);
}

// What is chosen, hovered and pinned; whoever listens to a name is called when it changes.
function makeStore(state) {
  const listeners = [];
  return {
    state,
    on: (names, listen) => listeners.push([names.split(" "), listen]),
    set(change) {
      const changed = Object.keys(change).filter((name) => state[name] !== change[name]);
      Object.assign(state, change);
      for (const [names, listen] of listeners) if (names.some((name) => changed.includes(name))) listen(state);
    },
  };
}

// Of several things asked for in a row, only the last is shown.
function keepLatest(failed) {
  let asked = 0;
  return async (promise, show) => {
    const mine = ++asked;
    try {
      const found = await promise;
      if (mine === asked) show(found);
    } catch (error) {
      failed(error);
    }
  };
}

// What is far from the window waits until it comes near: near(element, name, task) runs a task now or then, and of
// several of one name only the last.
function makeVisibilityScheduler() {
  const seen = new Set();
  const waiting = new Map();
  const watch = new IntersectionObserver(
    (entries) => {
      for (const { target, isIntersecting } of entries) {
        if (!isIntersecting) seen.delete(target);
        else {
          seen.add(target);
          const tasks = [...waiting.get(target).values()];
          waiting.get(target).clear();
          for (const task of tasks) task();
        }
      }
    },
    { rootMargin: "200px" },
  );
  return (element, name, task) => {
    if (seen.has(element)) return task();
    if (!waiting.has(element)) {
      waiting.set(element, new Map());
      watch.observe(element);
    }
    waiting.get(element).set(name, task);
  };
}

function makeTip() {
  const element = make("div", { class: "tip", role: "tooltip", hidden: true });
  function show(x, y, title, lines) {
    element.replaceChildren(
      make("div", { class: "tip-title" }, ...title),
      ...lines.map(([name, value]) =>
        make("div", { class: "tip-line" }, make("span", { text: name }), make("b", { text: value })),
      ),
    );
    element.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = element;
    const left = x + 18 + width > innerWidth ? x - width - 14 : x + 18;
    element.style.left = `${Math.max(6, left)}px`;
    element.style.top = `${Math.max(6, Math.min(y + 18, innerHeight - height - 6))}px`;
  }
  return { element, show, hide: () => (element.hidden = true) };
}

// A word that stands for a token inside a sentence.
function quoted(text) {
  return make("bdi", { class: "quoted", text: visible(text) });
}

function segments(label, choices, chosen, choose) {
  const buttons = choices.map(({ value, text, key }) =>
    make("button", {
      type: "button",
      "data-value": value,
      title: key ? `key ${key}` : null,
      text,
      onclick: () => choose(value),
    }),
  );
  function mark(value) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.dataset.value === value));
  }
  mark(chosen);
  return { element: make("div", { class: "segments", role: "group", "aria-label": label }, ...buttons), mark };
}

function slider({ name, entries }, value, choose) {
  const output = make("output");
  const input = make("input", { type: "range", min: 0, max: entries.length - 1, step: 1, "aria-label": name });
  function mark(position) {
    input.value = position;
    output.textContent = entries[position].text;
    input.setAttribute("aria-valuetext", entries[position].text);
  }
  mark(value);
  input.addEventListener("input", () => {
    mark(Number(input.value));
    choose(Number(input.value));
  });
  return { element: make("label", { class: "slider" }, make("span", { text: name }), input, output), mark };
}
