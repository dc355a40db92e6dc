// Numbers and times as people read them.

const UNITS = [
  [86400, "d", 3600, "h"],
  [3600, "h", 60, "min"],
  [60, "min", 1, "s"],
];

/** A duration: "0.4 s", "12 s", "3 min 20 s", "2 h 5 min". */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) {
    return "–";
  }
  const whole = Math.max(0, seconds);
  if (whole < 9.95) {
    return `${whole.toFixed(1)} s`;
  }
  for (const [size, unit, rest, restUnit] of UNITS) {
    if (whole >= size) {
      const left = Math.floor((whole % size) / rest);
      return `${Math.floor(whole / size)} ${unit}${left ? ` ${left} ${restUnit}` : ""}`;
    }
  }
  return `${Math.floor(whole)} s`;
}

/** A number of bytes: "812 B", "1.2 kB", "64 MB" (powers of 1000). */
export function bytes(count) {
  if (count === null || count === undefined) {
    return "–";
  }
  let value = count;
  for (const unit of ["B", "kB", "MB", "GB"]) {
    if (value < 999.5 || unit === "GB") {
      return `${unit === "B" || value >= 99.5 ? Math.round(value) : value.toFixed(1)} ${unit}`;
    }
    value /= 1000;
  }
  return "–";
}

/** A count with thin spaces: "12 400"; "–" for what is not known. */
export function number(count) {
  if (count === null || count === undefined) {
    return "–";
  }
  return String(count).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
}

/** What moves in a second: "0", "4.2/s", "1 240/s", or in bytes "12 kB/s"; "–" for what is not known. */
export function rate(value, unit = "1/s") {
  if (value === null || value === undefined) {
    return "–";
  }
  if (unit === "bytes/s") {
    return `${bytes(value)}/s`;
  }
  return value === 0 ? "0" : `${value < 9.95 ? value.toFixed(1) : number(Math.round(value))}/s`;
}

/** A short duration: "0.4 ms", "12 ms", "94 s", "3 min". */
export function shortDuration(seconds) {
  if (seconds === null || seconds === undefined) {
    return "–";
  }
  if (seconds >= 0.9995) {
    return seconds < 99.5 ? (seconds < 9.95 ? `${seconds.toFixed(1)} s` : `${Math.round(seconds)} s`) : `${Math.round(seconds / 60)} min`;
  }
  const ms = 1000 * seconds;
  return `${ms < 9.95 ? ms.toFixed(1) : Math.round(ms)} ms`;
}

/** "1 router", "3 routers". */
export function counted(count, singular, plural = `${singular}s`) {
  return `${number(count)} ${count === 1 ? singular : plural}`;
}

/** The time of day of an RFC 3339 time, in this browser's zone. */
export function timeOfDay(text) {
  const time = new Date(text);
  return Number.isNaN(time.getTime())
    ? text
    : `${time.toLocaleTimeString("en-GB")}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/** An address for a link, or null: only http and https, whatever a router's key says. */
export function webAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}
