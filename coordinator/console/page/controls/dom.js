// Creates elements. Data from the cluster is inserted as text, never as markup, so that a name cannot become a script.

/** Creates an element with attributes and children; strings become text. `on*` are listeners; null and false omit an attribute. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "class") element.className = value;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/** Creates an SVG element. */
export function svg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Sets a text if it differs: a screen reader announces a live region after every assignment. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute if it differs, to avoid a needless layout. */
export function mark(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

/**
 * Keeps the children of `parent` equal to `items`, in their order: one element per key, which is created once and then updated.
 * So an element keeps its focus.
 */
export function keep(parent, items, keyOf, make, update) {
  const known = (parent.kept ??= new Map());
  const wanted = new Set();
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = keyOf(item);
    if (wanted.has(key)) continue;
    wanted.add(key);
    let element = known.get(key);
    if (!element) known.set(key, (element = make(item)));
    update(element, item);
    if (element === place) place = place.nextElementSibling;
    else parent.insertBefore(element, place);
  }
  for (const [key, element] of known) {
    if (wanted.has(key)) continue;
    element.remove();
    known.delete(key);
  }
}
