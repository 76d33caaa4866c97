// Layer x head grids: every head as a small picture of its weights, or as a number. The chosen head is the same in all.

function headGrid(ctx, { label, name, large = 60 }) {
  const element = make("div", { class: "heads", role: "group", "aria-label": label, "data-heads": name });
  let buttons = [];
  let shape = null;
  let kind = null;

  element.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) ctx.store.set({ kind, layer: Number(button.dataset.layer), head: Number(button.dataset.head) });
  });

  function mark({ layer, head }) {
    if (!shape) return;
    const chosen = buttons[clamp(layer, shape[0])][clamp(head, shape[1])];
    const focused = element.contains(document.activeElement);
    for (const button of buttons.flat()) {
      const handleKey = button === chosen;
      button.setAttribute("aria-pressed", String(handleKey));
      button.tabIndex = handleKey ? 0 : -1;
    }
    if (focused) chosen.focus({ preventScroll: true });
  }

  // Lays out the buttons; `fill` puts something into each.
  function show(array, fill) {
    const [layerAxis, headAxis] = array.axes;
    const [layers, heads] = array.shape;
    const same = shape && shape[0] === layers && shape[1] === heads && kind === array.kind;
    [kind, shape] = [array.kind, [layers, heads]];
    if (!same) {
      element.style.setProperty("--heads", heads);
      element.style.setProperty("--head-size", `${Math.max(20, Math.min(large, Math.floor(292 / heads) - 3))}px`);
      buttons = layerAxis.entries.map((_, layer) => headAxis.entries.map((_, head) => headButton(array, layer, head)));
      const label = (name, { text }) => make("span", { class: name, text });
      const columns = headAxis.entries.map((entry) => label("heads-column", entry));
      const rows = buttons.flatMap((row, layer) => [label("heads-row", layerAxis.entries[layer]), ...row]);
      element.replaceChildren(make("span", { class: "heads-corner", text: "layer \\ head" }), ...columns, ...rows);
    }
    for (const button of buttons.flat()) fill(button, Number(button.dataset.layer), Number(button.dataset.head));
    mark(ctx.store.state);
  }
  ctx.store.on("layer head", mark);
  return { element, show };
}

function headButton(array, layer, head) {
  return make("button", {
    type: "button",
    "data-layer": layer,
    "data-head": head,
    "aria-label": headLabel(array, layer, head),
  });
}

// Small pictures, drawn when the browser has time for them, those in the window first. All are on one canvas: a
// canvas for each of 144 heads would cost more than what is on them.
function overview(ctx) {
  const grid = headGrid(ctx, { label: "all heads", name: "overview" });
  const [canvas, one] = [make("canvas", { "aria-hidden": "true" }), make("canvas")];
  grid.element.classList.add("pictures");
  const idle = idleQueue(ctx.failed);
  const watch = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) if (isIntersecting) idle.add(() => drawThumb(target));
  });
  const pending = new Map();
  new ResizeObserver(fit).observe(grid.element);

  function fit() {
    const pixels = window.devicePixelRatio || 1;
    const [width, height] = [grid.element.clientWidth * pixels, grid.element.clientHeight * pixels].map(Math.round);
    if (canvas.width === width && canvas.height === height) return;
    [canvas.width, canvas.height] = [width, height];
    for (const [button, job] of pending) wait(button, job);
  }

  function wait(button, job) {
    pending.set(button, { ...job });
    watch.unobserve(button);
    watch.observe(button);
  }

  async function drawThumb(button) {
    const job = pending.get(button);
    if (!job || job.begun || !canvas.width) return;
    job.begun = true;
    try {
      const values = await readWeights(ctx.viewData, job.kind, job.measure, job.layer, job.head);
      if (pending.get(button) !== job) return;
      const pixels = window.devicePixelRatio || 1;
      const [x, y, size] = [button.offsetLeft + 1, button.offsetTop + 1, button.clientWidth].map((each) =>
        Math.round(each * pixels),
      );
      paint(one, orient(ctx.weights(job.kind), values), job.limit, ctx.store.state.theme, size, size);
      const context = canvas.getContext("2d");
      context.imageSmoothingEnabled = false;
      context.drawImage(one, x, y, size, size);
      button.dataset.drawn = job.measure;
    } catch (error) {
      ctx.failed(error);
    }
  }

  function show(kind, measure, limit, unclear) {
    const live = new Set();
    grid.show(ctx.weights(kind), (button, layer, head) => {
      if (!button.firstChild) button.append(make("i"));
      button.classList.toggle("unclear", Boolean(unclear && unclear[layer][head]));
      live.add(button);
      wait(button, { kind, measure, limit, layer, head });
    });
    for (const button of pending.keys()) if (!live.has(button)) pending.delete(button);
    if (canvas.parentNode !== grid.element) grid.element.prepend(canvas);
    fit();
  }
  return { element: grid.element, show };
}

// Tasks for when the browser has time, or has had none for a while. One that fails does not stop the others.
function idleQueue(failed) {
  const tasks = [];
  const soon = (run) => setTimeout(() => run({ timeRemaining: () => 8 }), 16);
  const later = window.requestIdleCallback ? (run) => requestIdleCallback(run, { timeout: 120 }) : soon;
  function work(deadline) {
    do {
      try {
        tasks[0]();
      } catch (error) {
        failed(error);
      }
      tasks.shift();
    } while (tasks.length && deadline.timeRemaining() > 3);
    if (tasks.length) later(work);
  }
  return {
    add(task) {
      tasks.push(task);
      if (tasks.length === 1) later(work);
    },
  };
}

// One number a head, in its colour.
function numberGrid(ctx, { label, name, describe }) {
  const grid = headGrid(ctx, { label, name, large: 44 });
  let last = null;
  function show(array, values, limit) {
    last = [array, values, limit];
    const heads = array.shape[1];
    const scale = scaleOf(ctx.store.state.theme);
    grid.show(array, (button, layer, head) => {
      const value = values[layer * heads + head];
      button.textContent = heads <= 8 ? value.toFixed(2).replace("0.00", "0") : "";
      button.title = `${headLabel(array, layer, head)}: ${describe(value)}`;
      button.setAttribute("aria-label", button.title);
      button.style.backgroundColor = scale.css(value, limit);
      button.style.color = scale.textColour(value, limit);
    });
  }
  ctx.store.on("theme", () => last && show(...last));
  return { element: grid.element, show };
}
