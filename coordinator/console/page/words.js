// What things are called, from the words of the documents to those for people.

/** A node by its name. One that was removed is called `node 7`, as no name can be. */
const nodeText = (name) => (/^node \d+$/.test(name) ? name : `node ${name}`);

/** What something is about, as the command line says it. */
export function subjectText(subject) {
  switch (subject?.kind) {
    case "coordinator": return `coordinator ${subject.coordinator_id}`;
    case "node": return nodeText(subject.node);
    case "table": return `table ${subject.table}`;
    case "partition": return `partition ${subject.table}/${subject.partition}`;
    case "cluster": case "coordinators": case "copies": case "rebalance": return subject.kind;
    default: return "something newer than this page";
  }
}

/** Who caused something. */
export function causeText(cause) {
  switch (cause?.kind) {
    case "coordinator": return `coordinator ${cause.coordinator_id}`;
    case "node": return nodeText(cause.node);
    // Without TLS only the address is known.
    case "admin": return cause.admin ?? `operator at ${cause.from}`;
    default: return "somebody newer than this page";
  }
}

/** `in_sync` → `in sync`. Words that this page does not know stay what they are. */
export const spaced = (word) => String(word ?? "").replaceAll("_", " ");

/** It lives, and those who ask as clients do get no answer. */
const isUnreached = (node) => node.door?.state === "unreached";

/** How a node is, in words: what is wanted of it where that is not to serve, otherwise what the coordinators believe. */
export function nodeWords(node) {
  const { status, goal, copies_held: copies } = node;
  let words = spaced(status);
  if (status === "failed") {
    if (goal === "drain" && copies === 0) words = "drained, stopped";
    else if (goal === "maintain") words = "in maintenance, not alive";
    else if (node.stopped) words = "stopped";
  } else if (status === "alive") {
    if (goal === "drain") words = copies === 0 ? "drained" : "being drained";
    else if (goal === "cordon") words = "cordoned";
    else if (goal === "maintain") words = "in maintenance";
  }
  if (isUnreached(node)) words = `unreached, ${words}`;
  return node.disk_full ? `disk full, ${words}` : words;
}

/** How much that matters: `good`, `aside` (as somebody wants it), `bad`. */
export function nodeLevel(node) {
  if (node.disk_full || isUnreached(node)) return "bad";
  if (node.status === "alive") return node.goal === "serve" ? "good" : "aside";
  // A service ends its processes as it needs fewer. A node that is stopped leaves copies behind.
  const meant = node.goal === "maintain" || (node.stopped && (isParticipant(node) || node.copies_held === 0));
  return node.status === "failed" && meant ? "aside" : "bad";
}

export const isParticipant = (node) => (node.serves ?? []).length > 0;

/** The states of partitions by their letter, in the order of the legend: the worst first. */
export const STATES = [
  { letter: "l", word: "nobody leads", level: "bad" },
  { letter: "x", word: "offline", level: "bad" },
  { letter: "d", word: "too few copies", level: "warn" },
  { letter: "m", word: "moving", level: "aside" },
  { letter: "s", word: "splitting or merging", level: "aside" },
  { letter: "o", word: "online", level: "good" },
];

const BY_LETTER = new Map(STATES.map((state) => [state.letter, state]));
export const stateWord = (letter) => BY_LETTER.get(letter)?.word ?? (letter === "." ? "no such partition" : "unknown state");

/** A word as a shell takes it for one argument. */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

/** Arguments that name a partition. */
export const partitionArguments = (table, number) =>
  table === "default" ? String(number) : `${number} --table ${quoted(table)}`;
