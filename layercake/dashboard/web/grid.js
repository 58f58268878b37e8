// The rack, drawn: a canvas as high as the window that moves along, so that a hundred thousand nodes cost what is seen of them.
// It draws at most once a frame, and only when something is other than before.

import { h } from "./dom.js";
import { at, layout, next, placeOf, TITLE } from "./layout.js";

/** @typedef {{kind: string, letter: string, hollow: boolean, stopped: string}} Look */

const CELL = 15;
const MARGIN = 200;

export class Grid {
  /** @param {(row: import("./fleet.js").Row) => Look} look @param {(name: string, open: boolean) => void} chosen */
  constructor(look, chosen) {
    this.look = look;
    this.chosen = chosen;
    this.canvas = h("canvas", { "aria-hidden": "true" });
    this.element = h("div", {
      class: "grid", tabindex: 0, role: "application", "aria-label": "Nodes", "aria-describedby": "grid-help grid-node",
      onmousemove: (/** @type {MouseEvent} */ event) => this.point(event, false), onclick: (/** @type {MouseEvent} */ event) => this.point(event, true),
      onkeydown: (/** @type {KeyboardEvent} */ event) => this.key(event), onfocus: () => this.move(this.cursor || this.first()), onblur: () => this.draw(),
    }, this.canvas);
    /** @type {Map<string, import("./fleet.js").Row>} */
    this.rows = new Map();
    /** @type {import("./layout.js").Layout} */
    this.layout = { blocks: [], height: 0, width: 0, cell: CELL };
    /** @type {Map<string, HTMLCanvasElement>} */
    this.sprites = new Map();
    this.cursor = "";
    this.frame = 0;
    this.by = "";
    /** @type {AbortController} */
    this.ends = new AbortController();
    const { signal } = this.ends;
    window.addEventListener("scroll", () => this.draw(), { signal, passive: true });
    window.addEventListener("resize", () => this.arrange(), { signal });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.forget(), { signal });
  }

  end() {
    this.ends.abort();
    cancelAnimationFrame(this.frame);
  }

  /** Shows these nodes. @param {Iterable<import("./fleet.js").Row>} rows @param {string} by */
  show(rows, by) {
    this.rows = new Map([...rows].map((row) => [row.name, row]));
    this.by = by;
    this.arrange();
  }

  /** Some rows are other than before; false if the nodes themselves are. @param {import("./fleet.js").Row[]} changed */
  update(changed) {
    for (const row of changed) {
      if (!this.rows.has(row.name)) return false;
      this.rows.set(row.name, row);
    }
    this.draw();
    return true;
  }

  first() {
    return this.layout.blocks[0]?.names[0] ?? "";
  }

  arrange() {
    const width = this.element.clientWidth;
    if (width === 0) return;
    this.layout = layout(this.rows.values(), this.by, width, CELL);
    this.element.style.height = `${this.layout.height + 4}px`;
    this.draw();
  }

  /** Colours are others. */
  forget() {
    this.sprites.clear();
    this.draw();
  }

  draw() {
    if (this.frame === 0) this.frame = requestAnimationFrame(() => { this.frame = 0; this.paint(); });
  }

  paint() {
    const box = this.element.getBoundingClientRect();
    const top = Math.max(0, Math.min(-box.top - MARGIN / 2, this.layout.height - innerHeight));
    const height = Math.min(this.layout.height + 4, innerHeight + MARGIN);
    const scale = devicePixelRatio;
    const { canvas } = this;
    const [wide, tall] = [Math.ceil(this.layout.width * scale), Math.ceil(height * scale)];
    if (canvas.width !== wide || canvas.height !== tall) {
      [canvas.width, canvas.height] = [wide, tall];
      canvas.style.width = `${this.layout.width}px`;
      canvas.style.height = `${height}px`;
    }
    canvas.style.transform = `translateY(${top}px)`;
    const pen = canvas.getContext("2d", { alpha: true });
    if (pen === null) return;
    pen.setTransform(scale, 0, 0, scale, 0, -top * scale);
    pen.clearRect(0, top, this.layout.width, height);
    const style = getComputedStyle(this.element);
    pen.font = `600 12px ${style.fontFamily}`;
    pen.fillStyle = style.color;
    for (const block of this.layout.blocks) {
      if (block.y > top + height || block.y + block.height < top) continue;
      pen.fillText(block.title, block.x, block.y + TITLE - 7, block.width);
      this.cells(pen, block, top, top + height);
    }
    this.mark(pen, style);
    this.element.dataset.painted = String(Number(this.element.dataset.painted ?? 0) + 1);
  }

  /** @param {CanvasRenderingContext2D} pen @param {import("./layout.js").Block} block @param {number} top @param {number} bottom */
  cells(pen, block, top, bottom) {
    const begin = Math.max(0, Math.floor((top - block.y - TITLE) / CELL)) * block.columns;
    const end = Math.min(block.names.length, Math.ceil((bottom - block.y - TITLE) / CELL) * block.columns);
    for (let i = begin; i < end; i++) {
      const row = this.rows.get(block.names[i]);
      if (row === undefined) continue;
      pen.drawImage(this.sprite(this.look(row)), block.x + (i % block.columns) * CELL, block.y + TITLE + Math.floor(i / block.columns) * CELL, CELL, CELL);
    }
  }

  /** The node that the keyboard is at. @param {CanvasRenderingContext2D} pen @param {CSSStyleDeclaration} style */
  mark(pen, style) {
    const place = this.cursor && document.activeElement === this.element ? placeOf(this.layout, this.cursor) : null;
    if (place === null) return;
    pen.strokeStyle = style.getPropertyValue("--focus");
    pen.lineWidth = 3;
    pen.strokeRect(place[0] - 0.5, place[1] - 0.5, CELL, CELL);
  }

  /** A cell as a picture, made once. @param {Look} look */
  sprite(look) {
    const key = `${look.kind} ${look.letter} ${look.hollow} ${look.stopped} ${devicePixelRatio}`;
    let found = this.sprites.get(key);
    if (found === undefined) {
      found = document.createElement("canvas");
      found.width = found.height = CELL * devicePixelRatio;
      const pen = found.getContext("2d");
      if (pen !== null) this.ink(pen, look);
      this.sprites.set(key, found);
    }
    return found;
  }

  /** @param {CanvasRenderingContext2D} pen @param {Look} look */
  ink(pen, look) {
    const style = getComputedStyle(this.element);
    const [fill, on] = [style.getPropertyValue(`--${look.kind}`), style.getPropertyValue(`--on-${look.kind}`)];
    const size = CELL - 2;
    pen.scale(devicePixelRatio, devicePixelRatio);
    [pen.fillStyle, pen.strokeStyle] = [fill, fill];
    pen.lineWidth = 2;
    if (look.hollow) pen.strokeRect(2, 2, size - 2, size - 2);
    else pen.fillRect(1, 1, size, size);
    if (look.stopped) {
      pen.fillStyle = style.getPropertyValue("--stopped");
      pen.beginPath();
      pen.moveTo(CELL - 1, 1);
      pen.lineTo(CELL - 1, 8);
      pen.lineTo(CELL - 8, 1);
      pen.fill();
    }
    pen.fillStyle = look.hollow ? style.color : on;
    pen.font = `700 10px ${style.fontFamily}`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(look.letter, CELL / 2, CELL / 2 + 0.5);
  }

  // -- who points at what

  /** @param {MouseEvent} event @param {boolean} open */
  point(event, open) {
    const box = this.element.getBoundingClientRect();
    const name = at(this.layout, event.clientX - box.left, event.clientY - box.top);
    this.element.classList.toggle("over", name !== "");
    if (name !== "") this.chosen(name, open);
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Enter" && this.cursor) this.chosen(this.cursor, true);
    else if (/^(Arrow(Left|Right|Up|Down)|Home|End)$/.test(event.key)) this.move(next(this.layout, this.cursor, event.key));
    else return;
    event.preventDefault();
  }

  /** @param {string} name */
  move(name) {
    this.cursor = name;
    const place = placeOf(this.layout, name);
    if (place !== null) {
      const top = this.element.getBoundingClientRect().top + place[1];
      if (top < 80 || top > innerHeight - 60) window.scrollBy(0, top - innerHeight / 2);
      this.chosen(name, false);
    }
    this.draw();
  }
}
