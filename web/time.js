// Times and spans in words. Pure: what time it is comes in as an argument.

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** A span as `5s`, `4m12s`, `1h4m`, `2d3h`: two units at most. */
export function span(millis) {
  const seconds = Math.max(0, Math.round(millis / SECOND));
  if (seconds < 60) return `${seconds}s`;
  if (seconds < 3_600) return pair(seconds, 60, "m", 1, "s");
  if (seconds < 86_400) return pair(seconds, 3_600, "h", 60, "m");
  return pair(seconds, 86_400, "d", 3_600, "h");
}

function pair(seconds, large, largeName, small, smallName) {
  const rest = Math.floor((seconds % large) / small);
  const first = `${Math.floor(seconds / large)}${largeName}`;
  return rest === 0 ? first : `${first}${rest}${smallName}`;
}

/** A short span to the tenth of a second: what a delay of a policy needs. */
export function exactSpan(millis) {
  if (millis > 0 && millis < 10 * SECOND && millis % SECOND !== 0) {
    return millis < SECOND ? `${Math.round(millis)}ms` : `${(millis / SECOND).toFixed(1)}s`;
  }
  return span(millis);
}

/** How long until then, counted so that it reads 1s until it is over. */
export function left(until, now) {
  return span(Math.ceil(Math.max(0, until - now) / SECOND) * SECOND);
}

/** A time as milliseconds, or nothing. */
export function millis(time) {
  const value = typeof time === "string" ? Date.parse(time) : Number.NaN;
  return Number.isNaN(value) ? undefined : value;
}

/** The time of day, with the date when it is not today. */
export function clockTime(at, now) {
  const time = new Date(at);
  const isToday = time.toDateString() === new Date(now).toDateString();
  const far = Math.abs(at - now) >= HOUR;
  const day = isToday ? "" : `${time.toLocaleDateString([], { month: "short", day: "numeric" })}, `;
  const style = { hour: "2-digit", minute: "2-digit", ...(far ? {} : { second: "2-digit" }), hour12: false };
  return day + time.toLocaleTimeString([], style);
}

/** How long ago that was. */
export function ago(at, now) {
  const past = now - at;
  if (past < 5 * SECOND) return "just now";
  if (past < 30 * DAY)
    return `${span(past)
      .replace(/(\d+[hd]).*/, "$1")
      .replace(/(\d+m)\d+s/, "$1")} ago`;
  return new Date(at).toLocaleDateString([], { year: "numeric", month: "short", day: "numeric" });
}

/** How long something lasts by now. */
export function lasting(since, now) {
  return `for ${span(now - since)
    .replace(/(\d+[hd]).*/, "$1")
    .replace(/(\d+m)\d+s/, "$1")}`;
}

/** Steps of an axis of time that fit so many labels. */
export function axisStep(length, most) {
  const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 43_200, 86_400];
  const step = steps.find((seconds) => length / (seconds * SECOND) <= most);
  return (step ?? 86_400 * Math.ceil(length / (DAY * most))) * SECOND;
}
