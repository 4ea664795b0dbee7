// Formats of numbers, times, sizes and keys, equal to those of the command line.

const whole = new Intl.NumberFormat("en-US");

/** 1,234; a dash if it is unknown. */
export const count = (number) => (number === null || number === undefined ? "–" : whole.format(number));

/** `1 move`, `2 moves`. */
export const counted = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

/** Short form: 950, 12.3k, 4.5M. */
export function short(number) {
  if (number === null || number === undefined) return "–";
  if (number < 1_000) return String(Math.round(number));
  let value = number;
  for (const unit of ["k", "M", "G", "T"]) {
    value /= 1_000;
    if (value < 999.95 || unit === "T") return `${value < 100 ? value.toFixed(1) : Math.round(value)}${unit}`;
  }
  return "";
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  if (number < 1_024) return `${Math.round(number)} B`;
  let value = number;
  for (const unit of ["KiB", "MiB", "GiB", "TiB", "PiB"]) {
    value /= 1_024;
    if (value < 1_024 || unit === "PiB") return `${value.toFixed(1)} ${unit}`;
  }
  return "";
}

/** Duration in its largest unit: 350 ms, 12 s, 4 m, 3 h, 2 d. */
export function lasting(ms) {
  if (ms === null || ms === undefined) return "–";
  const seconds = Math.floor(Math.max(ms, 0) / 1_000);
  if (seconds < 1) return `${Math.max(Math.round(ms), 0)} ms`;
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m`;
  return seconds < 86_400 ? `${Math.floor(seconds / 3_600)} h` : `${Math.floor(seconds / 86_400)} d`;
}

/** Remaining time in its two largest units: 40 s, 3 m 20 s, 2 h 5 m. */
export function coming(ms) {
  const seconds = Math.max(1, Math.round(ms / 1_000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3_600) return `${Math.floor(seconds / 60)} m ${seconds % 60} s`;
  return `${Math.floor(seconds / 3_600)} h ${Math.floor((seconds % 3_600) / 60)} m`;
}

/** Latency: 0.31 ms, 12.4 ms, 1.2 s. */
export function latency(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms >= 1_000) return `${(ms / 1_000).toFixed(1)} s`;
  return ms >= 100 ? `${Math.round(ms)} ms` : ms >= 10 ? `${ms.toFixed(1)} ms` : `${ms.toFixed(2)} ms`;
}

/** Time of day in the user's time zone. */
export const clock = (atMs) => new Date(atMs).toLocaleTimeString("en-GB");

/** Date and time. */
export const dateTime = (atMs) => new Date(atMs).toLocaleString("en-GB");

/** A key of a row in quotes; hexadecimal digits if it is not text. */
export const keyText = (key) => (typeof key === "string" ? `“${key}”` : `0x${key.hex}`);
