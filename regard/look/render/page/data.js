// View data in the browser: what page.py packed, decompressed block by block when it is first drawn.

const INPUT_AXES = ["key", "input"];
const OUTPUT_AXES = ["query", "output"];

// The arrays that have a section of their own, by view and name, with their number of axes. Any other is generic.
const SECTION_ARRAYS = {
  summary: { importance: 2 },
  attention: { weights: 4 },
  effective: { weights: 4 },
  alternative: { weights: 4, alternative: 4, distance: 3, output_difference: 3 },
  identifiability: { keys: 3, rank: 3, null: 3, null_fraction: 3 },
  attribution: { contribution: 3, self_contribution: 2, dominated_fraction: 1, error: 3 },
  similarity: { eigenvalues: 3, symmetric_fraction: 2, positive: 2 },
  rollout: { rollout: 3 },
  gradients: { gradient_x_input: 2, integrated_gradients: 2, convergence_delta: 1 },
  faithfulness: { drop: 2, score: 1, error: 1 },
  positions: { vectors: 2 },
};

function openViewData(data) {
  const sides = new Map(data.sides.map((side) => [side.name, side.tokens]));
  const nextTokens = new Map(data.sides.map((side) => [side.name, side.next_tokens]));
  const arrays = data.arrays.map((array) => openArray(array, sides, nextTokens));
  const known = ({ view, name, shape }) => Object.hasOwn(SECTION_ARRAYS, view) && SECTION_ARRAYS[view][name] === shape.length;
  const sectionArrays = arrays.filter(known);
  return {
    sides,
    arrays,
    genericArrays: arrays.filter((array) => !known(array) && !array.label),
    notes: data.notes || {},
    about: data.about || {},
    digits: data.digits,
    palette: data.palette,
    focus: data.focus,
    identifiableKinds: data.identifiable_kinds,
    of: (view) => sectionArrays.filter((array) => array.view === view),
    find: (view, kind, name) =>
      sectionArrays.find((array) => array.view === view && array.kind === kind && array.name === name) || null,
  };
}

function openArray(packed, sides, nextTokens) {
  const { view, kind, name, shape, limit, signed, label, names, code, description } = packed;
  const axes = packed.axes.map((axis, position) => openAxis(axis, shape[position], sides, nextTokens));
  const valuesPerBlock = product(shape.length > 2 ? shape.slice(1) : shape);
  const opened = new Map();
  function block(number) {
    if (!opened.has(number)) opened.set(number, openBlock(packed, number, valuesPerBlock));
    return opened.get(number);
  }
  // The numbers at the first few indices: read(2, 5) of (layer, head, query, key) is the matrix of layer 2, head 5.
  async function read(...indices) {
    const [first, ...rest] = shape.length > 2 ? indices : [0, ...indices];
    const sizes = shape.length > 2 ? shape.slice(1) : shape;
    const numbers = await block(first);
    const length = product(sizes.slice(rest.length));
    const start = rest.reduce((sum, index, position) => sum + index * product(sizes.slice(position + 1)), 0);
    return numbers.subarray(start, start + length);
  }
  const title = [view, kind, name].filter(Boolean).join(".");
  const axis = (axisName) => axes.find((each) => each.name === axisName) || null;
  return { view, kind, name, title, description, axes, axis, shape, read, limit, signed, label, names, code };
}

// Along an axis that predicts the next token, an entry is named by both: the token read and the one written after it.
function openAxis(axis, length, sides, nextTokens) {
  const tokens = axis.over.length > 0;
  const label = (side, text, index) => {
    const next = axis.predicts_next && nextTokens.get(side)[index];
    return next ? `${visible(text)} → ${visible(next)}` : text;
  };
  const entries = tokens
    ? axis.over.flatMap((side) => sides.get(side).map((text, index) => ({ side, index, text: label(side, text, index) })))
    : Array.from({ length }, (_, index) => ({ side: null, index, text: axis.labels[index] || String(index) }));
  const role = INPUT_AXES.includes(axis.name) ? "in" : OUTPUT_AXES.includes(axis.name) ? "out" : "both";
  const positions = new Map(entries.map((entry, position) => [`${entry.side} ${entry.index}`, position]));
  return { name: axis.name, over: axis.over, predictsNext: axis.predicts_next, tokens, entries, role, positions, length };
}

async function openBlock(packed, number, valuesPerBlock) {
  if (packed.values) {
    const part = packed.values.slice(number * valuesPerBlock, (number + 1) * valuesPerBlock);
    return Float32Array.from(part, (value) => (value === null ? NaN : value));
  }
  const bytes = await inflate(packed.blocks[number]);
  packed.blocks[number] = null;
  if (!packed.code) return Float32Array.from(new Uint16Array(bytes.buffer));
  const codes = packed.code.bits === 8 ? bytes : new Uint16Array(bytes.buffer);
  const table = Float32Array.from({ length: packed.code.nan + 1 }, (_, code) => decoded(code, packed.code));
  const numbers = new Float32Array(codes.length);
  for (let position = 0; position < codes.length; position++) numbers[position] = table[codes[position]];
  return numbers;
}

function decoded(code, { limit, levels, zero, nan }) {
  if (code === nan) return NaN;
  const step = (code - zero) / levels;
  return Math.sign(step) * step * step * limit;
}

async function inflate(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let position = 0; position < bytes.length; position++) bytes[position] = characters.charCodeAt(position);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function product(numbers) {
  return numbers.reduce((total, number) => total * number, 1);
}

// The largest absolute value; NaN counts for nothing.
function largest(values) {
  let most = 0;
  for (const value of values) {
    const size = Math.abs(value);
    if (size > most) most = size;
  }
  return most;
}

function mean(values) {
  return values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : NaN;
}

// "layer 2, head 5" by the labels of the array, which may hold a single layer or head.
function headLabel(array, layer, head) {
  return `layer ${array.axes[0].entries[layer].text}, head ${array.axes[1].entries[head].text}`;
}

// The weights of a head: raw, effective, or raw minus effective.
async function readWeights(viewData, kind, measure, layer, head) {
  const find = (view) => viewData.find(view, kind, "weights");
  if (measure !== "difference") return find(measure === "raw" ? "attention" : "effective").read(layer, head);
  const [raw, effective] = await Promise.all([find("attention").read(layer, head), find("effective").read(layer, head)]);
  return raw.map((value, position) => value - effective[position]);
}
