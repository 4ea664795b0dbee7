// Current state of the cluster. The feed updates its sections, and the parts of the page are notified once per frame.

import { PartitionMap } from "../tables/partition_map.js";

/** Period of the charts. */
export const LOADS_FOR_MS = 5 * 60_000;
/** Largest number of their points: one per second, and some more. */
const LOADS_MAX = 330;

class Store {
  hello = null;
  status = null;
  nodes = null;
  tables = null;
  rebalance = null;
  events = null;
  quorum = null;
  trouble = null;
  /** `connecting`, `live`, `reconnecting`. `trouble` is set if the shown state is old. */
  connection = "connecting";
  /** Time of the last message, by this machine's clock. */
  heardAtMs = null;
  loads = [];
  /** Partitions by table number. */
  maps = new Map();
  /** Id of the selected node, whose partitions are highlighted. */
  picked = null;

  #greetings = 0;
  #clockAheadMs = null;
  #listeners = [];
  #changed = new Set();
  #scheduled = false;

  /** Calls `listener` in the frame after a change of any of the sections. */
  on(sections, listener) {
    this.#listeners.push({ sections, listener });
  }

  /** Replaces a section. */
  set(section, value) {
    this[section] = value;
    this.touch(section);
  }

  /** Marks a section as changed. A hidden page has no frames; the changes are drawn once when it is visible again. */
  touch(section) {
    this.#changed.add(section);
    if (this.#scheduled) return;
    this.#scheduled = true;
    requestAnimationFrame(() => this.#tell());
  }

  #tell() {
    this.#scheduled = false;
    const changed = this.#changed;
    this.#changed = new Set();
    for (const { sections, listener } of this.#listeners) {
      if (!sections.some((section) => changed.has(section))) continue;
      // A failure of one part must not stop the others.
      try {
        listener(changed);
      } catch (error) {
        console.error(error);
      }
    }
  }

  /** Starts a connection: all sections are sent again in full, so the old ones are dropped. */
  greet(hello) {
    this.#greetings += 1;
    this.loads = [];
    this.set("trouble", null);
    this.set("hello", hello);
    this.touch("loads");
  }

  /** Adds a point to the charts. */
  addLoad(load) {
    const last = this.loads.at(-1);
    if (last && load.at_ms <= last.at_ms) return;
    this.loads.push(load);
    const oldest = load.at_ms - LOADS_FOR_MS;
    while (this.loads.length > LOADS_MAX || this.loads[0].at_ms < oldest) this.loads.shift();
    this.#clockAheadMs = load.at_ms - Date.now();
    this.touch("loads");
  }

  /** Returns the cluster's time according to its last message: the clock of this machine may differ by minutes. */
  nowMs() {
    return Date.now() + (this.#clockAheadMs ?? 0);
  }

  /** Updates the nodes. Usually only numbers change. */
  changeNodes({ nodes, numbers, gone }) {
    if (this.nodes === null) return;
    for (const [id, led, copies, bytes, keys, rate, silent] of numbers) {
      const node = this.nodeOf(id);
      if (!node) continue;
      Object.assign(node, { partitions_led: led, copies_held: copies, bytes_stored: bytes, keys_stored: keys, operations_per_second: rate, silent_for_ms: silent });
    }
    if (nodes.length + gone.length === 0) {
      this.touch("nodes");
      return;
    }
    const changed = new Map(nodes.map((node) => [node.node_id, node]));
    const away = new Set(gone);
    const kept = this.nodes.filter((node) => !away.has(node.node_id)).map((node) => changed.get(node.node_id) ?? node);
    const known = new Set(kept.map((node) => node.node_id));
    this.set("nodes", [...kept, ...nodes.filter((node) => !known.has(node.node_id))]);
  }

  setMap(document) {
    const map = new PartitionMap(document, this.#greetings);
    this.maps.set(document.table_id, map);
    this.touch("maps");
  }

  changeMap({ table_id: table, version, changes }) {
    if (this.maps.get(table)?.apply(version, changes)) this.touch("maps");
  }

  dropMap(table) {
    if (this.maps.delete(table)) this.touch("maps");
  }

  /** Takes the list of tables: the map of a table that is not on it is dropped. */
  setTables(tables) {
    const there = new Set(tables.map((table) => table.table_id));
    for (const [table, map] of this.maps) {
      if (!there.has(table) && map.greeting < this.#greetings) this.dropMap(table);
    }
    this.set("tables", tables);
  }

  nodeOf(number) {
    if (this.#nodesAt !== this.nodes) {
      this.#nodesAt = this.nodes;
      this.#nodesById = new Map((this.nodes ?? []).map((node) => [node.node_id, node]));
    }
    return this.#nodesById.get(number);
  }

  #nodesAt = null;
  #nodesById = new Map();
}

export const store = new Store();
