// The partitions of one table: who leads each, and in which state it is. Arrays of numbers, since there may be 100,000.

const NOTHING = ".".charCodeAt(0);

export class PartitionMap {
  /** Of a whole map, which came in the connection with number `greeting`. */
  constructor({ table_id, table, version, holds, leaders, states }, greeting) {
    this.tableId = table_id;
    this.table = table;
    this.version = version;
    this.holds = holds;
    this.greeting = greeting;
    this.length = states.length;
    // Numbers of nodes may be beyond 32 bits.
    this.leaders = Float64Array.from({ length: this.length }, (_, at) => leaders[at] ?? 0);
    this.states = Uint8Array.from({ length: this.length }, (_, at) => states.charCodeAt(at));
    this.counts = new Map();
    for (const state of this.states) this.#tally(state, 1);
    /** Numbers of partitions that changed since they were taken; null: all. */
    this.changed = null;
  }

  /** Takes changes; false if they are older than what is known. */
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
    // While nobody draws, one mark for all is less than a list of most.
    if (this.changed && this.changed.size > this.length / 4) this.changed = null;
    return true;
  }

  /** What is to be drawn, and from now on nothing is. */
  takeChanged() {
    const changed = this.changed;
    this.changed = new Set();
    return changed;
  }

  /** The state's letter. */
  state(number) {
    return String.fromCharCode(this.states[number]);
  }

  /** Counts by letter, those without any too. */
  countsOf(letters) {
    return Object.fromEntries(letters.map((letter) => [letter, this.counts.get(letter.charCodeAt(0)) ?? 0]));
  }

  /** Partitions that there are. */
  get total() {
    return this.length - (this.counts.get(NOTHING) ?? 0);
  }

  /** The next partition in this state after `number`, from the beginning again after the last one; null if there is none. */
  nextInState(letter, number) {
    const state = letter.charCodeAt(0);
    const after = this.states.indexOf(state, number + 1);
    const found = after >= 0 ? after : this.states.indexOf(state);
    return found >= 0 ? found : null;
  }

  #tally(state, by) {
    this.counts.set(state, (this.counts.get(state) ?? 0) + by);
  }

  /** Splits make partitions with higher numbers; between them may be some that are none yet. */
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
