// Formats numbers for people. An unknown value is a dash.

const DASH = "–";

const round = (value, digits) => value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: 0 });

// Shows three significant digits.
const short = (value) => round(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);

export function bytes(value) {
  if (value === null || value === undefined) return DASH;
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${short(value)} ${units[unit]}`;
}

export function count(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 10000) return round(value, 0);
  const units = ["", "k", "M", "G", "T"];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  return `${short(value)} ${units[unit]}`.trim();
}

export function rate(value) {
  if (value === null || value === undefined) return DASH;
  return value < 10 ? round(value, 1) : count(value);
}

export function percent(share) {
  if (share === null || share === undefined) return DASH;
  const value = share * 100;
  return `${round(value, value > 0 && value < 9.95 ? 1 : 0)} %`;
}

export function milliseconds(value) {
  if (value === null || value === undefined) return DASH;
  if (value < 1) return `${round(value * 1000, 0)} µs`;
  if (value < 1000) return `${short(value)} ms`;
  return `${short(value / 1000)} s`;
}

export function duration(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

// The text in at most `most` characters, with an ellipsis in place of its middle: names often differ only
// at their ends.
export function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}

export function clock(unixMs) {
  return new Date(unixMs).toLocaleTimeString("en-GB");
}
