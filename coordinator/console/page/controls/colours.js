// Colours of owners, states and loads in both themes, in the forms that canvases need.

const darkWanted = matchMedia("(prefers-color-scheme: dark)");

/** Returns whether the page is dark. */
export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : darkWanted.matches;
}

/** Calls `listener` when the theme changes. */
export function onTheme(listener) {
  const changed = () => {
    known.clear();
    listener();
  };
  darkWanted.addEventListener("change", changed);
  new MutationObserver(changed).observe(document.documentElement, { attributeFilter: ["data-theme"] });
}

/** Cache of colours. It is bounded, since node ids are never reused. */
const known = new Map();
const KNOWN_MAX = 5_000;

function remembered(key, make) {
  let colour = known.get(key);
  if (!colour) {
    if (known.size >= KNOWN_MAX) known.clear();
    known.set(key, (colour = make()));
  }
  return colour;
}

/** OKLCH is perceptually uniform: owners differ by hue alone, and none stands out. */
function oklch(lightness, chroma, hue) {
  const radians = (hue * Math.PI) / 180;
  const [a, b] = [chroma * Math.cos(radians), chroma * Math.sin(radians)];
  const l = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3;
  const m = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3;
  const s = (lightness - 0.0894841775 * a - 1.291485548 * b) ** 3;
  const linear = [
    4.0767416621 * l - 3.3077115913 * m + 0.2309699292 * s,
    -1.2684380046 * l + 2.6097574011 * m - 0.3413193965 * s,
    -0.0041960863 * l - 0.7034186147 * m + 1.707614701 * s,
  ];
  const [red, green, blue] = linear.map((value) => {
    const clear = Math.min(Math.max(value, 0), 1);
    return Math.round(255 * (clear <= 0.0031308 ? 12.92 * clear : 1.055 * clear ** (1 / 2.4) - 0.055));
  });
  // `packed` is a pixel of a canvas as one little-endian number.
  return { css: `rgb(${red} ${green} ${blue})`, packed: ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0 };
}

/** Red is reserved for failures: owners have the hues from yellow through green and blue to violet. */
const HUE_FIRST = 75;
const HUES = 265;
const GOLDEN = 0.6180339887;

export const ownerColour = (node) =>
  remembered(`o${node}`, () => {
    const turn = ((node - 1) * GOLDEN + 0.68) % 1;
    const step = [0, 0.12, -0.12][Math.abs(Math.floor((node - 1) / 5)) % 3];
    return oklch((isDark() ? 0.62 : 0.68) + step, isDark() ? 0.1 : 0.105, HUE_FIRST + HUES * turn);
  });

/** `[lightness in the dark theme, in the light theme, chroma, hue]`. */
const FIXED = {
  o: [0.44, 0.82, 0.05, 165],
  d: [0.77, 0.72, 0.15, 75],
  m: [0.72, 0.6, 0.13, 245],
  s: [0.7, 0.58, 0.15, 310],
  l: [0.64, 0.56, 0.21, 25],
  x: [0.58, 0.5, 0.012, 260],
  leaderless: [0.3, 0.86, 0.01, 260],
  nothing: [0.2, 0.955, 0.006, 260],
  unknown: [0.38, 0.8, 0.008, 260],
  ink: [0.97, 0.2, 0.005, 260],
};

/** Returns the colour of a state, or of `ink`, `leaderless`, `nothing` or `unknown`. */
export const fixedColour = (name) =>
  remembered(name, () => {
    const [dark, light, chroma, hue] = FIXED[name] ?? FIXED.unknown;
    return oklch(isDark() ? dark : light, chroma, hue);
  });

/** Returns the colour of a load: pale below the owner's fair share, strong at twice the share. */
export function loadColour(percent) {
  if (percent === null || percent === undefined) return fixedColour("unknown");
  const step = Math.min(20, Math.round(percent / 10));
  return remembered(`load${step}`, () => {
    const part = step / 20;
    return oklch(isDark() ? 0.3 + 0.5 * part : 0.93 - 0.5 * part, 0.03 + 0.13 * part, 235 - 175 * part);
  });
}

/** Returns a faint version of a colour, for partitions of owners that are not selected. */
export const faint = (colour) =>
  remembered(`faint${colour.packed}`, () => {
    const ground = isDark() ? [22, 26, 31] : [246, 247, 249];
    const parts = [0, 8, 16].map((shift, at) => Math.round(((colour.packed >>> shift) & 255) * 0.2 + ground[at] * 0.8));
    const [red, green, blue] = parts;
    return { css: `rgb(${red} ${green} ${blue})`, packed: ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0 };
  });
