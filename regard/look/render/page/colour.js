// One scale for everything: blue for above zero, orange for below, the paper for zero; equal steps look equal (OKLCH).
// A number's place on it is the square root of its size, so that the small weights of long texts can be seen.

const STEPS = 255;
const NO_VALUE = 1000;
const SCALE_ENDS = {
  light: { paper: 0.985, end: 0.34, above: [258, 0.145], below: [50, 0.125] },
  dark: { paper: 0.24, end: 0.93, above: [252, 0.12], below: [65, 0.125] },
};

const scales = {};

function scaleOf(theme) {
  if (!scales[theme]) scales[theme] = makeScale(SCALE_ENDS[theme]);
  return scales[theme];
}

function makeScale({ paper, end, above, below }) {
  const colours = [];
  for (let step = -STEPS; step <= STEPS; step++) {
    const part = Math.abs(step) / STEPS;
    const [hue, chroma] = step < 0 ? below : above;
    colours.push(
      inGamut(paper + (end - paper) * part, 0.006 + chroma * Math.sin(Math.PI * Math.min(0.5, 0.75 * part)), hue),
    );
  }
  const table = Uint32Array.from(colours, ([red, green, blue]) => (255 << 24) | (blue << 16) | (green << 8) | red);
  const css = (value, limit) => `rgb(${colours[stepOf(value, limit)].join(" ")})`;
  const textColour = (value, limit) => {
    const [red, green, blue] = colours[stepOf(value, limit)].map((part) => (part / 255) ** 2.2);
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.2 ? "#101418" : "#ffffff";
  };
  const ends = [colours[60], colours[2 * STEPS - 60]].map((colour) => colour.join(" "));
  return { table, css, textColour, ends };
}

// The place of a number in the table; what is not a number has none.
function stepOf(value, limit) {
  const size = Math.sqrt(Math.min(1, Math.abs(value) / limit));
  return STEPS + Math.round(value < 0 ? -STEPS * size : STEPS * size);
}

function inGamut(lightness, chroma, hue) {
  for (let less = chroma; less > 0; less -= 0.004) {
    const colour = fromOklch(lightness, less, hue);
    if (colour.every((part) => part >= 0 && part <= 1)) return colour.map((part) => Math.round(255 * part));
  }
  return fromOklch(lightness, 0, hue).map((part) => Math.round(255 * Math.min(1, Math.max(0, part))));
}

// Ottosson 2020, from OKLCH to sRGB.
function fromOklch(lightness, chroma, hue) {
  const a = chroma * Math.cos((hue * Math.PI) / 180);
  const b = chroma * Math.sin((hue * Math.PI) / 180);
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  return [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ].map((part) => (part <= 0.0031308 ? 12.92 * part : 1.055 * part ** (1 / 2.4) - 0.055));
}

// Paints a matrix, one pixel a cell. Where there are fewer pixels than cells, each shows its strongest cell.
function paint(canvas, matrix, limit, theme, width = Infinity, height = Infinity) {
  const { values, rows, columns, down, right } = matrix;
  canvas.width = Math.max(1, Math.min(columns, Math.floor(width)));
  canvas.height = Math.max(1, Math.min(rows, Math.floor(height)));
  const { table } = scaleOf(theme);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  const steps = new Int16Array(pixels.length).fill(NO_VALUE);
  const pixelOf = Uint16Array.from({ length: columns }, (_, column) => Math.floor((column * canvas.width) / columns));
  for (let row = 0; row < rows; row++) {
    const line = Math.floor((row * canvas.height) / rows) * canvas.width;
    for (let column = 0; column < columns; column++) {
      const value = values[row * down + column * right];
      if (value !== value) continue;
      const pixel = line + pixelOf[column];
      const step = stepOf(value, limit) - STEPS;
      if (steps[pixel] === NO_VALUE || Math.abs(step) > Math.abs(steps[pixel])) steps[pixel] = step;
    }
  }
  for (let pixel = 0; pixel < pixels.length; pixel++) {
    if (steps[pixel] !== NO_VALUE) pixels[pixel] = table[STEPS + steps[pixel]];
  }
  context.putImageData(image, 0, 0);
}

const TICK_VALUES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];

// The scale with its numbers.
function makeLegend(ctx, caption) {
  const bar = make("canvas", { class: "legend-bar", width: 2 * STEPS + 1, height: 1, "aria-hidden": "true" });
  const ticks = make("div", { class: "legend-ticks" });
  const element = make(
    "div",
    { class: "legend" },
    bar,
    ticks,
    caption ? make("p", { class: "legend-caption", text: caption }) : null,
  );
  function show(limit, signed) {
    const size = limit || 1;
    const end = signed ? -1 : 0;
    const matrix = { values: new Float32Array(256), rows: 1, columns: 256, down: 0, right: 1 };
    for (let position = 0; position < 256; position++) {
      const part = end + (position / 255) * (1 - end);
      matrix.values[position] = Math.sign(part) * part * part * size;
    }
    paint(bar, matrix, size, ctx.store.state.theme);
    const shown = ticksUpTo(size, signed ? 0.34 : 0.16);
    const all = signed ? [...shown.filter((value) => value).map((value) => -value), ...shown] : shown;
    ticks.replaceChildren(...all.map((value) => tickAt(value, size, end)));
  }
  return { element, show };
}

function tickAt(value, limit, end) {
  const part = Math.sign(value) * Math.sqrt(Math.abs(value) / limit);
  const tick = make("span", { text: formatTick(value) });
  tick.style.left = `${(100 * (part - end)) / (1 - end)}%`;
  return tick;
}

// Zero, the limit, and round numbers between them that have room.
function ticksUpTo(limit, minGap) {
  const ticks = [limit];
  let last = 1;
  for (const number of [...TICK_VALUES].reverse()) {
    const part = Math.sqrt(number / limit);
    if (part <= last - minGap && part >= minGap) {
      ticks.unshift(number);
      last = part;
    }
  }
  return [0, ...ticks];
}
