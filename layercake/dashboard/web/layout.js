// Where each node is in the rack view: blocks of cells, one for each group, that flow like words. Pure.

/** @typedef {{title: string, names: string[], x: number, y: number, columns: number, width: number, height: number}} Block */
/** @typedef {{blocks: Block[], height: number, width: number, cell: number}} Layout */

export const TITLE = 20;
const GAP = 14;
const LEAST = 7;

const order = new Intl.Collator("en", { numeric: true });

/** What a node may be grouped by, of what the nodes have. @param {Iterable<import("./fleet.js").Row>} rows */
export function groupings(rows) {
  const labels = new Set();
  let [domains, switches, networks] = [false, false, false];
  for (const row of rows) {
    domains ||= row.domains.length > 0;
    switches ||= switchOf(row) !== "";
    networks ||= row.network !== null;
    for (const key of Object.keys(row.labels)) labels.add(key);
  }
  return [...(domains ? ["place"] : []), ...(switches ? ["switch"] : []), "group", ...(networks ? ["network"] : []), ...[...labels].sort().map((key) => `label:${key}`), "nothing"];
}

/** The switch that a node is at, by the inventory: as it calls itself, or as option 82 has it. @param {import("./fleet.js").Row} row */
export function switchOf({ place }) {
  return place?.switch || place?.remote || place?.relay || "";
}

/** Its port there. @param {import("./fleet.js").Row} row */
export function portOf({ place }) {
  return place?.port || place?.circuit || "";
}

/** The group that a node is shown in. @param {import("./fleet.js").Row} row @param {string} by */
function groupOf(row, by) {
  if (by === "place") return row.domains[0] ?? "";
  if (by === "switch") return switchOf(row);
  if (by === "group") return row.groups[0] ?? "";
  if (by === "network") return row.network ?? "";
  return by.startsWith("label:") ? row.labels[by.slice(6)] ?? "" : "";
}

/**
 * Puts nodes into blocks. @param {Iterable<import("./fleet.js").Row>} rows @param {string} by @param {number} width in pixels
 * @param {number} cell @returns {Layout}
 */
export function layout(rows, by, width, cell) {
  /** @type {Map<string, string[]>} */
  const groups = new Map();
  /** @type {Map<string, string>} */
  const ports = new Map();
  for (const row of rows) {
    const title = groupOf(row, by);
    const names = groups.get(title);
    if (names) names.push(row.name);
    else groups.set(title, [row.name]);
    if (by === "switch") ports.set(row.name, portOf(row));
  }
  const inOrder = (/** @type {string} */ a, /** @type {string} */ b) => order.compare(ports.get(a) ?? "", ports.get(b) ?? "") || order.compare(a, b);
  const titles = [...groups.keys()].sort((a, b) => Number(a === "") - Number(b === "") || order.compare(a, b));
  const most = Math.max(1, Math.floor(width / cell));
  const blocks = [];
  let [x, y, tall] = [0, 0, 0];
  for (const title of titles) {
    const names = (groups.get(title) ?? []).sort(by === "switch" ? inOrder : order.compare);
    const columns = Math.min(most, Math.max(LEAST, Math.ceil(Math.sqrt(names.length) * 1.25)));
    const block = { title: title || (by === "nothing" ? "all" : `no ${by.replace("label:", "")}`), names, x, y, columns, width: columns * cell, height: TITLE + Math.ceil(names.length / columns) * cell };
    if (x > 0 && x + block.width > width) {
      y += tall + GAP;
      [block.x, block.y, x, tall] = [0, y, 0, 0];
    }
    x += block.width + GAP;
    tall = Math.max(tall, block.height);
    blocks.push(block);
  }
  return { blocks, height: y + tall, width, cell };
}

/** The node at a place, "" for none. @param {Layout} found @param {number} x @param {number} y */
export function at(found, x, y) {
  for (const block of found.blocks) {
    const [column, row] = [Math.floor((x - block.x) / found.cell), Math.floor((y - block.y - TITLE) / found.cell)];
    if (column >= 0 && column < block.columns && row >= 0) {
      const name = block.names[row * block.columns + column];
      if (name !== undefined && y <= block.y + block.height) return name;
    }
  }
  return "";
}

/** The place of a node: the corner of its cell. @param {Layout} found @param {string} name @returns {[number, number] | null} */
export function placeOf(found, name) {
  for (const block of found.blocks) {
    const index = block.names.indexOf(name);
    if (index >= 0) return [block.x + (index % block.columns) * found.cell, block.y + TITLE + Math.floor(index / block.columns) * found.cell];
  }
  return null;
}

/** The next node in a direction; the same if there is none. @param {Layout} found @param {string} name @param {string} key */
export function next(found, name, key) {
  const all = found.blocks.flatMap((block) => block.names);
  const index = all.indexOf(name);
  if (index < 0) return all[0] ?? "";
  if (key === "Home") return all[0];
  if (key === "End") return all[all.length - 1];
  if (key === "ArrowLeft") return all[Math.max(0, index - 1)];
  if (key === "ArrowRight") return all[Math.min(all.length - 1, index + 1)];
  const here = placeOf(found, name);
  if (here === null) return name;
  const [down, half] = [key === "ArrowDown" ? 1 : -1, found.cell / 2];
  for (let step = 1; step <= 8; step++) { // over the title of the block below
    const there = at(found, here[0] + half, here[1] + half + down * (step < 3 ? step * half * 2 : found.cell + step * half * 2));
    if (there && there !== name) return there;
  }
  return name;
}
