// Text from outside, made fit to be shown.
//
// Invariant: what comes out has no control characters, nothing that turns the direction of writing around, nothing
// that cannot be seen, and at most as many characters as were asked for.

/** Marks the place where an answer broke off and goes on. Never comes from outside: `clean` takes it out. */
export const SEAM = "\uE000";

/** How much of one text is shown. */
export const LONGEST = 200_000;

// Controls but tab and newline, marks and overrides of direction, tags that nobody sees, our own mark.
const UNSEEN =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u061C\u200B\u200E\u200F\u202A-\u202E\u2060-\u206F\uFEFF\uFFF9-\uFFFB\uE000]|\uDB40[\uDC00-\uDC7F]|[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/g;

/** The text without what could deceive whoever reads it. */
export function clean(text, longest = LONGEST) {
  const all = String(text ?? "").replace(/\r\n?|[\u2028\u2029]/g, "\n");
  const seen = all.replace(UNSEEN, "");
  if (seen.length <= longest) return seen;
  const left = seen.length - longest;
  // A pair of surrogates is not torn apart.
  const kept = seen.slice(0, longest).replace(/[\uD800-\uDBFF]$/, "");
  return `${kept}… (${left.toLocaleString("en")} more characters)`;
}

/** The text on one line, cut where it gets too long. */
export function line(text, longest = 200) {
  const all = clean(String(text ?? "").slice(0, longest * 4))
    .replace(/\s+/g, " ")
    .trim();
  return all.length <= longest ? all : `${all.slice(0, longest - 1).replace(/[\uD800-\uDBFF]$/, "")}…`;
}

/** A name for programs as words for people: `at_gate` becomes `at gate`. */
export function words(name) {
  return line(name, 60).replace(/_/g, " ");
}

/** Where a link may lead, or nothing. */
export function safeAddress(address) {
  const plain = clean(address, 2_000).trim();
  if (!/^https?:\/\//i.test(plain)) return undefined;
  try {
    return new URL(plain).href;
  } catch {
    return undefined;
  }
}

/** A number of tokens as a person says it. */
export function amount(number) {
  const value = Number(number) || 0;
  if (value < 10_000) return value.toLocaleString("en");
  if (value < 1_000_000) return `${Math.round(value / 1_000)}k`;
  return `${(value / 1_000_000).toFixed(1)}M`;
}

/** The end of a path, which says the most. */
export function shortPath(path) {
  const all = line(path, 400);
  const parts = all.split(/(?<=[/\\])/);
  return parts.length <= 4 ? all : `…/${parts.slice(-2).join("")}`;
}
