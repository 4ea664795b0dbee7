// Names and terms for people, from the codes of the documents.

/** Returns the name of a node. A removed node is `node 7`, which no name can be. */
const nodeText = (name) => (/^node \d+$/.test(name) ? name : `node ${name}`);

/** Describes a subject, with the words of the command line. */
export function subjectText(subject) {
  switch (subject?.kind) {
    case "coordinator": return `coordinator ${subject.coordinator_id}`;
    case "node": return nodeText(subject.node);
    case "table": return `table ${subject.table}`;
    case "partition": return `partition ${subject.table}/${subject.partition}`;
    case "copies": return "replicas";
    case "cluster": case "coordinators": case "rebalance": return subject.kind;
    default: return "unknown to this version of the page";
  }
}

/** Describes a cause. */
export function causeText(cause) {
  switch (cause?.kind) {
    case "coordinator": return `coordinator ${cause.coordinator_id}`;
    case "node": return nodeText(cause.node);
    // Without TLS only the address is known.
    case "admin": return cause.admin ?? `operator at ${cause.from}`;
    default: return "unknown to this version of the page";
  }
}

/** `in_sync` → `in sync`. Unknown words stay as they are. */
export const spaced = (word) => String(word ?? "").replaceAll("_", " ");

/** Returns whether a node is alive but does not answer clients. */
const isUnreached = (node) => node.door?.state === "unreached";

/** Describes the status of a node: its goal if it is not to serve, otherwise the status by the coordinators. */
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

/** Returns the level of a node's status: `good`, `aside` (intended by an operator) or `bad`. */
export function nodeLevel(node) {
  if (node.disk_full || isUnreached(node)) return "bad";
  if (node.status === "alive") return node.goal === "serve" ? "good" : "aside";
  // Stopped participants are normal. A stopped node leaves copies without a server.
  const meant = node.goal === "maintain" || (node.stopped && (isParticipant(node) || node.copies_held === 0));
  return node.status === "failed" && meant ? "aside" : "bad";
}

export const isParticipant = (node) => (node.serves ?? []).length > 0;

/** States of partitions by letter, in the order of the legend: the worst first. */
export const STATES = [
  { letter: "l", word: "without leader", level: "bad" },
  { letter: "x", word: "offline", level: "bad" },
  { letter: "d", word: "too few replicas", level: "warn" },
  { letter: "m", word: "moving", level: "aside" },
  { letter: "s", word: "splitting or merging", level: "aside" },
  { letter: "o", word: "online", level: "good" },
];

const BY_LETTER = new Map(STATES.map((state) => [state.letter, state]));
export const stateWord = (letter) => BY_LETTER.get(letter)?.word ?? (letter === "." ? "no such partition" : "unknown state");

/** Quotes a word as one argument of a shell. */
export const quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${String(word).replaceAll("'", "'\\''")}'`);

/** Returns the arguments that name a partition. */
export const partitionArguments = (table, number) =>
  table === "default" ? String(number) : `${number} --table ${quoted(table)}`;
