// Draws very many partitions: one pixel each in a small image, which is then enlarged. A call per cell would be too slow.

export class Dots {
  #small = document.createElement("canvas");
  #smallContext = this.#small.getContext("2d");
  #picture = null;
  #pixels = null;

  /** Creates an image of so many columns and rows. */
  resize(columns, rows) {
    if (this.#picture?.width === columns && this.#picture.height === rows) return;
    this.#small.width = columns;
    this.#small.height = rows;
    this.#picture = this.#smallContext.createImageData(columns, rows);
    this.#pixels = new Uint32Array(this.#picture.data.buffer);
  }

  /** Draws the partitions `changed`, or all if it is null, in the colours that `colourOf` returns. */
  draw(context, map, colourOf, cell, changed) {
    if (changed === null) {
      this.#pixels.fill(0);
      for (let number = 0; number < map.length; number += 1) this.#dot(map, number, colourOf);
      this.#smallContext.putImageData(this.#picture, 0, 0);
      context.clearRect(0, 0, context.canvas.width, context.canvas.height);
      this.#enlarge(context, 0, 0, this.#small.width, this.#small.height, cell);
      return;
    }
    const columns = this.#small.width;
    for (const number of changed) {
      this.#dot(map, number, colourOf);
      const [x, y] = [number % columns, Math.floor(number / columns)];
      this.#smallContext.putImageData(this.#picture, 0, 0, x, y, 1, 1);
      context.clearRect(x * cell, y * cell, cell, cell);
      this.#enlarge(context, x, y, 1, 1, cell);
    }
  }

  #dot(map, number, colourOf) {
    this.#pixels[number] = map.state(number) === "." ? 0 : colourOf(number).packed;
  }

  #enlarge(context, x, y, width, height, cell) {
    context.imageSmoothingEnabled = false;
    context.drawImage(this.#small, x, y, width, height, x * cell, y * cell, width * cell, height * cell);
  }
}
