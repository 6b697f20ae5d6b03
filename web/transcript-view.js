// The transcript on the page: changes come in, and are drawn together, once for each frame.
//
// It stays at the end while whoever reads it is there, and leaves them alone otherwise. Of a long one the last part is
// drawn, and earlier ones when they are asked for.

import { button, h, show } from "./dom.js";
import { icon } from "./icons.js";
import { draw, redraw } from "./transcript-items.js";

/** So many items are drawn at first, and more each time. */
const PAGE = 200;
/** Whoever is so close to the end is there. */
const AT_END = 48;

export class TranscriptView {
  #elements = new Map();
  #dirty = new Set();
  #isPlanned = false;
  #isAtEnd = true;
  #from = 0;
  #state;

  constructor() {
    this.list = h("ol", { class: "items" });
    this.tail = h("div", { class: "tail" });
    this.truncated = h("p", { class: "note", hidden: true }, "This session is long. Its beginning is not shown here.");
    this.earlier = button("Show earlier messages", { class: "earlier", hidden: true }, () => this.#showEarlier());
    this.inner = h("div", { class: "transcript-inner" }, this.truncated, this.earlier, this.list, this.tail);
    this.scroller = h(
      "div",
      { class: "transcript", role: "region", "aria-label": "Transcript", tabindex: "0", test: "transcript" },
      this.inner,
    );
    this.jump = button([icon("down"), h("span", {}, "Latest")], { class: "jump", hidden: true }, () => this.toEnd());
    this.element = h("div", { class: "transcript-frame" }, this.scroller, this.jump);
    this.scroller.addEventListener("scroll", () => this.#look(), { passive: true });
    this.resizing = new ResizeObserver(() => this.#stay());
    this.resizing.observe(this.inner);
    this.resizing.observe(this.scroller);
  }

  /** Begins anew with a state, of which the beginning may have been left out. */
  reset(state, isTruncated) {
    this.#state = state;
    show(this.truncated, isTruncated);
    this.#elements.clear();
    this.#dirty.clear();
    this.list.replaceChildren();
    this.#from = Math.max(0, state.items.length - PAGE);
    this.#drawFrom(state.items.slice(this.#from), undefined);
    show(this.earlier, this.#from > 0);
    this.toEnd();
  }

  /** Takes changes in; they are drawn with the next frame. */
  change(changes) {
    for (const { kind, item } of changes) {
      if (kind === "add" || kind === "update") this.#dirty.add(item);
      else if (kind === "remove") this.#remove(item);
    }
    if (this.#dirty.size > 0) this.#plan();
  }

  toEnd() {
    this.#isAtEnd = true;
    this.scroller.scrollTop = this.scroller.scrollHeight;
    show(this.jump, false);
  }

  close() {
    this.resizing.disconnect();
  }

  #plan() {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    const paint = () => {
      this.#isPlanned = false;
      this.#paint();
    };
    // Frames do not come while nobody looks; changes do.
    if (document.hidden) setTimeout(paint, 200);
    else requestAnimationFrame(paint);
  }

  #paint() {
    const items = [...this.#dirty].sort((one, other) => one.key - other.key);
    this.#dirty.clear();
    for (const item of items) {
      const known = this.#elements.get(item.key);
      if (known) redraw(known, item);
      else if (this.#isShown(item)) this.#drawFrom([item], undefined);
    }
    this.#stay();
  }

  #isShown(item) {
    const first = this.#state.items[this.#from];
    return first === undefined || item.key >= first.key;
  }

  #drawFrom(items, before) {
    const last = this.#state.items.at(-1);
    const made = items.map((item) => {
      const element = draw(item, item === last);
      this.#elements.set(item.key, element);
      return element;
    });
    if (before) before.before(...made);
    else this.list.append(...made);
  }

  #remove(item) {
    this.#dirty.delete(item);
    this.#elements.get(item.key)?.remove();
    this.#elements.delete(item.key);
  }

  #showEarlier() {
    const first = this.list.firstElementChild;
    const to = this.#from;
    this.#from = Math.max(0, to - PAGE);
    const height = this.scroller.scrollHeight;
    this.#drawFrom(this.#state.items.slice(this.#from, to), first);
    this.scroller.scrollTop += this.scroller.scrollHeight - height;
    show(this.earlier, this.#from > 0);
    if (this.#from === 0) this.scroller.focus();
  }

  #look() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    this.#isAtEnd = scrollHeight - clientHeight - scrollTop < AT_END;
    show(this.jump, !this.#isAtEnd);
  }

  #stay() {
    if (this.#isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
    else this.#look();
  }
}
