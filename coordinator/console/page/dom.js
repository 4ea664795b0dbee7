// Makes elements. Whatever comes from the cluster goes in as text, never as markup, so that a name cannot become a script.

/** An element with attributes and children; strings become text. `on*` are listeners, null and false leave an attribute out. */
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

/** An element of an SVG picture. */
export function svg(tag, attributes = {}) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  return element;
}

export const byId = (id) => document.getElementById(id);

/** Sets a text only if it is another one: a live region speaks each time it is touched. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute only if it is another one, so that nothing is laid out anew for nothing. */
export function mark(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, String(value));
  }
}

/**
 * Keeps the children of `parent` equal to `items`: one element per key, made once, updated each time, in the order of the
 * items. What has the focus or is being read keeps its element.
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
