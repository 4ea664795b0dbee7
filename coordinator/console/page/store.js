// What is known of the cluster now. The feed puts sections in; the parts of the page are told once per frame which changed.

import { PartitionMap } from "./partition_map.js";

/** How far back the lines of throughput and latency go. */
export const LOADS_FOR_MS = 5 * 60_000;
/** At most so many points of them: one a second, and a few more. */
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
  /** `connecting`, `live`, `reconnecting`; whether what is shown is old says `trouble`. */
  connection = "connecting";
  /** When anything was heard last, by this machine's clock. */
  heardAtMs = null;
  loads = [];
  /** Partitions by the number of their table. */
  maps = new Map();
  /** Number of the node of which the partitions are shown, if one was picked. */
  picked = null;

  #greetings = 0;
  #clockAheadMs = null;
  #listeners = [];
  #changed = new Set();
  #scheduled = false;

  /** Calls `listener` in the next frame after any of the sections changed. */
  on(sections, listener) {
    this.#listeners.push({ sections, listener });
  }

  /** Puts a section in. */
  set(section, value) {
    this[section] = value;
    this.touch(section);
  }

  /** Says that a section changed. A hidden page draws no frames; what changed meanwhile is drawn once when it is seen again. */
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
      // One part that fails must not take the others with it.
      try {
        listener(changed);
      } catch (error) {
        console.error(error);
      }
    }
  }

  /** A connection begins: everything comes whole once more, so nothing of before is kept beside it. */
  greet(hello) {
    this.#greetings += 1;
    this.loads = [];
    this.set("trouble", null);
    this.set("hello", hello);
    this.touch("loads");
  }

  /** One point of the lines. */
  addLoad(load) {
    const last = this.loads.at(-1);
    if (last && load.at_ms <= last.at_ms) return;
    this.loads.push(load);
    const oldest = load.at_ms - LOADS_FOR_MS;
    while (this.loads.length > LOADS_MAX || this.loads[0].at_ms < oldest) this.loads.shift();
    this.#clockAheadMs = load.at_ms - Date.now();
    this.touch("loads");
  }

  /** The cluster's time, as far as its last message tells: a reader's clock may be wrong by minutes. */
  nowMs() {
    return Date.now() + (this.#clockAheadMs ?? 0);
  }

  /** Of most nodes only numbers changed. */
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

  /** The list of tables came: a map of an earlier connection whose table is not on it was dropped meanwhile. */
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
