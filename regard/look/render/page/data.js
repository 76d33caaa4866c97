// The sheet in the browser: what page.py packed, opened block by block when it is first drawn.

const GIVES = ["key", "input"];
const RECEIVES = ["query", "output"];

// The arrays the sections know, by view and name, with their number of axes. Any other is shown as what it is.
const KNOWN = {
  attention: { weights: 4 },
  effective: { weights: 4 },
  identifiability: { keys: 3, rank: 3, null: 3, share: 3 },
  attribution: { share: 3, own_share: 2, strayed: 1, error: 3 },
  similarity: { eigenvalues: 3, mutual: 2, positive: 2 },
  rollout: { rollout: 3 },
  gradients: { gradient_x_input: 2, integrated_gradients: 2, gap: 1 },
  faithfulness: { drop: 2, score: 1, error: 1 },
  positions: { vectors: 2 },
};

function openSheet(data) {
  const sides = new Map(data.sides.map((side) => [side.name, side.tokens]));
  const every = data.arrays.map((array) => openArray(array, sides));
  const known = ({ view, name, shape }) => Object.hasOwn(KNOWN, view) && KNOWN[view][name] === shape.length;
  const arrays = every.filter(known);
  return {
    sides,
    every,
    others: every.filter((array) => !known(array) && !array.label),
    notes: data.notes || {},
    about: data.about || {},
    digits: data.digits,
    of: (view) => arrays.filter((array) => array.view === view),
    find: (view, kind, name) =>
      arrays.find((array) => array.view === view && array.kind === kind && array.name === name) || null,
  };
}

function openArray(packed, sides) {
  const { view, kind, name, shape, limit, signed, label, code } = packed;
  const axes = packed.axes.map((axis, place) => openAxis(axis, shape[place], sides));
  const perBlock = product(shape.length > 2 ? shape.slice(1) : shape);
  const opened = new Map();
  function block(number) {
    if (!opened.has(number)) opened.set(number, openBlock(packed, number, perBlock));
    return opened.get(number);
  }
  // The numbers at the first few indices: at(2, 5) of (layer, head, query, key) is the matrix of layer 2, head 5.
  async function at(...indices) {
    const [first, ...rest] = shape.length > 2 ? indices : [0, ...indices];
    const sizes = shape.length > 2 ? shape.slice(1) : shape;
    const numbers = await block(first);
    const length = product(sizes.slice(rest.length));
    const start = rest.reduce((sum, index, place) => sum + index * product(sizes.slice(place + 1)), 0);
    return numbers.subarray(start, start + length);
  }
  const title = [view, kind, name].filter(Boolean).join(".");
  const axis = (wanted) => axes.find((each) => each.name === wanted) || null;
  return { view, kind, name, title, said: packed.said || title, axes, axis, shape, at, limit, signed, label, code };
}

function openAxis(axis, length, sides) {
  const tokens = axis.over.length > 0;
  const entries = tokens
    ? axis.over.flatMap((side) => sides.get(side).map((text, index) => ({ side, index, text })))
    : Array.from({ length }, (_, index) => ({ side: null, index, text: axis.labels[index] || String(index) }));
  const role = GIVES.includes(axis.name) ? "in" : RECEIVES.includes(axis.name) ? "out" : "both";
  const places = new Map(entries.map((entry, place) => [`${entry.side} ${entry.index}`, place]));
  return { name: axis.name, over: axis.over, ahead: axis.ahead, tokens, entries, role, places, length };
}

async function openBlock(packed, number, perBlock) {
  if (packed.values) {
    const part = packed.values.slice(number * perBlock, (number + 1) * perBlock);
    return Float32Array.from(part, (value) => (value === null ? NaN : value));
  }
  const bytes = await inflate(packed.blocks[number]);
  packed.blocks[number] = null;
  if (!packed.code) return Float32Array.from(new Uint16Array(bytes.buffer));
  const codes = packed.code.bits === 8 ? bytes : new Uint16Array(bytes.buffer);
  const table = Float32Array.from({ length: packed.code.none + 1 }, (_, code) => decoded(code, packed.code));
  const numbers = new Float32Array(codes.length);
  for (let place = 0; place < codes.length; place++) numbers[place] = table[codes[place]];
  return numbers;
}

function decoded(code, { limit, levels, zero, none }) {
  if (code === none) return NaN;
  const step = (code - zero) / levels;
  return Math.sign(step) * step * step * limit;
}

async function inflate(text) {
  const characters = atob(text);
  const bytes = new Uint8Array(characters.length);
  for (let place = 0; place < bytes.length; place++) bytes[place] = characters.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

function product(numbers) {
  return numbers.reduce((total, number) => total * number, 1);
}

// The largest size of a number that is one.
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

// "layer 2, head 5" as the array itself counts them: it may hold but one layer, or one head.
function headSaid(array, layer, head) {
  return `layer ${array.axes[0].entries[layer].text}, head ${array.axes[1].entries[head].text}`;
}

// The weights of a head as the model used them, as its output can tell them, or what is between the two.
async function measured(sheet, kind, measure, layer, head) {
  const find = (view) => sheet.find(view, kind, "weights");
  if (measure !== "difference") return find(measure === "raw" ? "attention" : "effective").at(layer, head);
  const [raw, effective] = await Promise.all([find("attention").at(layer, head), find("effective").at(layer, head)]);
  return raw.map((value, place) => value - effective[place]);
}
