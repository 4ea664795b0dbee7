// Draws partitions as tiles with a shape, which identifies the state without its colour.

import { fixedColour } from "../controls/colours.js";

/** Smallest tile with a shape, in pixels of the screen. Smaller tiles get the colour of the state from the caller. */
export const SHAPE_FROM = 7;

/** Draws a tile of `size` pixels with its corner at `x`, `y`. */
export function drawTile(context, x, y, size, letter, colour) {
  context.clearRect(x, y, size, size);
  if (letter === ".") {
    gap(context, x, y, size);
    return;
  }
  context.fillStyle = colour.css;
  if (size < SHAPE_FROM) {
    context.fillRect(x, y, size, size);
    return;
  }
  (SHAPES[letter] ?? plain)(context, x, y, size);
}

/** No partition has this number: a small dot. */
function gap(context, x, y, size) {
  if (size < SHAPE_FROM) return;
  const dot = Math.max(2, Math.round(size / 7));
  const at = Math.floor((size - dot) / 2);
  context.fillStyle = fixedColour("leaderless").css;
  context.fillRect(x + at, y + at, dot, dot);
}

function plain(context, x, y, size) {
  context.fillRect(x, y, size, size);
}

const stroke = (size) => Math.max(1, Math.round(size / 9));

const SHAPES = {
  o: plain,
  /** Too few copies: only the lower half is filled. */
  d(context, x, y, size) {
    const half = Math.floor(size / 2);
    const width = stroke(size);
    context.fillRect(x, y + half, size, size - half);
    context.strokeStyle = fixedColour("d").css;
    context.lineWidth = width;
    context.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
  },
  /** Moving: an outline with a gap around what is inside. */
  m(context, x, y, size) {
    const width = stroke(size);
    context.strokeStyle = fixedColour("ink").css;
    context.lineWidth = width;
    context.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
    const inset = 2 * width;
    context.fillRect(x + inset, y + inset, size - 2 * inset, size - 2 * inset);
  },
  /** Splitting or merging: two halves beside each other. */
  s(context, x, y, size) {
    const gap = Math.max(1, Math.round(size / 6));
    const part = Math.floor((size - gap) / 2);
    context.fillRect(x, y, part, size);
    context.fillStyle = fixedColour("s").css;
    context.fillRect(x + size - part, y, part, size);
  },
  /** No leader: crossed out, nothing inside. */
  l(context, x, y, size) {
    const width = stroke(size);
    const inset = Math.round(size * 0.25);
    context.strokeStyle = fixedColour("l").css;
    context.lineWidth = width;
    context.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
    context.lineWidth = width * 1.4;
    context.beginPath();
    context.moveTo(x + inset, y + inset);
    context.lineTo(x + size - inset, y + size - inset);
    context.moveTo(x + size - inset, y + inset);
    context.lineTo(x + inset, y + size - inset);
    context.stroke();
  },
  /** Offline: one bar in an empty frame. */
  x(context, x, y, size) {
    const width = stroke(size);
    const high = Math.max(2, Math.round(size / 5));
    context.strokeStyle = context.fillStyle = fixedColour("x").css;
    context.lineWidth = width;
    context.strokeRect(x + width / 2, y + width / 2, size - width, size - width);
    context.fillRect(x + 2 * width, y + Math.floor((size - high) / 2), size - 4 * width, high);
  },
};
