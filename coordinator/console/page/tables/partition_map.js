// Leaders and states of the partitions of a table, in arrays of numbers: there may be 100,000.

const NOTHING = ".".charCodeAt(0);

export class PartitionMap {
  /** Takes a complete map that was received on the connection with number `greeting`. */
  constructor({ table_id, table, version, holds, leaders, states }, greeting) {
    this.tableId = table_id;
    this.table = table;
    this.version = version;
    this.holds = holds;
    this.greeting = greeting;
    this.length = states.length;
    // Node ids may exceed 32 bits.
    this.leaders = Float64Array.from({ length: this.length }, (_, at) => leaders[at] ?? 0);
    this.states = Uint8Array.from({ length: this.length }, (_, at) => states.charCodeAt(at));
    this.counts = new Map();
    for (const state of this.states) this.#tally(state, 1);
    /** Numbers of the partitions that changed since the last drawing; null: all. */
    this.changed = null;
  }

  /** Applies changes. Returns false if they are older than the map. */
  apply(version, changes) {
    if (version < this.version) return false;
    this.version = version;
    for (const [number, leader, letter] of changes) {
      if (number >= this.length) this.#grow(number + 1);
      const state = letter.charCodeAt(0);
      this.#tally(this.states[number], -1);
      this.#tally(state, 1);
      this.states[number] = state;
      this.leaders[number] = leader;
      this.changed?.add(number);
    }
    // Without drawing, a mark for all is cheaper than a long list.
    if (this.changed && this.changed.size > this.length / 4) this.changed = null;
    return true;
  }

  /** Returns the changed partitions and clears the list. */
  takeChanged() {
    const changed = this.changed;
    this.changed = new Set();
    return changed;
  }

  /** Returns the letter of a partition's state. */
  state(number) {
    return String.fromCharCode(this.states[number]);
  }

  /** Returns the number of partitions by letter. */
  countsOf(letters) {
    return Object.fromEntries(letters.map((letter) => [letter, this.counts.get(letter.charCodeAt(0)) ?? 0]));
  }

  /** Returns the number of existing partitions. */
  get total() {
    return this.length - (this.counts.get(NOTHING) ?? 0);
  }

  /** Returns the next partition in a state after `number`, and continues at the beginning; null if there is none. */
  nextInState(letter, number) {
    const state = letter.charCodeAt(0);
    const after = this.states.indexOf(state, number + 1);
    const found = after >= 0 ? after : this.states.indexOf(state);
    return found >= 0 ? found : null;
  }

  #tally(state, by) {
    this.counts.set(state, (this.counts.get(state) ?? 0) + by);
  }

  /** Extends the arrays: splits create partitions with higher numbers, and not in order. */
  #grow(length) {
    const leaders = new Float64Array(length);
    const states = new Uint8Array(length).fill(NOTHING);
    leaders.set(this.leaders);
    states.set(this.states);
    this.counts.set(NOTHING, (this.counts.get(NOTHING) ?? 0) + length - this.length);
    this.leaders = leaders;
    this.states = states;
    this.length = length;
    this.changed = null;
  }
}
