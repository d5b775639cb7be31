// The dashboard: asks the daemon once a second, and shows its replies. It changes nothing.

import { Chart, niceBytes } from "./chart.js";
import { byId, element } from "./elements.js";
import { bytes, clock, count, duration, milliseconds, percent, rate, shortened } from "./format.js";
import { Strips } from "./strips.js";
import { TERMS } from "./terms.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 5000;
const MOST_POINTS = 600;
const COLORS = 8;
const MOST_OF_AN_OWNER = 32;
const narrow = matchMedia("(max-width: 760px)");

const state = { points: [], last: 0, minutes: 5, names: [], status: null, began: null };

// ---- colours of tenants, in the order of their first appearance, so that no colour changes

function colorOf(name) {
  let index = state.names.indexOf(name);
  if (index < 0) index = state.names.push(name) - 1;
  return `var(--tenant-${index < COLORS ? index : "other"})`;
}

const dotOf = (name) => element("span", { className: "dot", style: { background: colorOf(name) } });
const nameOf = (name) => element("span", { className: "name", textContent: shortened(name, narrow.matches ? 14 : 28) });
const who = (name) => element("span", { className: "who", title: name }, dotOf(name), nameOf(name));

// ---- charts

const charts = {
  sms: new Chart(byId("chart-sms"), {
    title: "SMs in use", hint: "Share of all SMs, by tenant", unit: percent, stacked: true, max: () => 1,
    empty: "Nothing ran in this time",
  }),
  latency: new Chart(byId("chart-latency"), {
    title: "Tail latency", hint: "p99 of bursts of work, ms; dashed: the objective", unit: milliseconds, log: true,
    empty: "No latencies: nobody shared a device",
  }),
  memory: new Chart(byId("chart-memory"), {
    title: "Device memory", hint: "Held by each tenant’s sessions", unit: bytes, stacked: true, max: niceBytes,
    empty: "No memory is in use",
  }),
  throttled: new Chart(byId("chart-throttled"), {
    title: "Throttled", hint: "Share of the time in which a tenant’s work was throttled", unit: percent, max: (value) => (value > 0.4 ? Math.max(1, Math.ceil(value)) : value > 0.08 ? 0.4 : 0.08),
    empty: "Nobody was throttled",
  }),
};

const strips = new Strips(byId("strips"));

function drawCharts() {
  const points = state.points;
  const times = points.map((point) => point.unix_ms);
  const to = times.length === 0 ? Date.now() : times.at(-1);
  const from = to - state.minutes * 60000;
  const shown = new Set();
  for (const point of points) if (point.unix_ms >= from) for (const name of Object.keys(point.tenants)) shown.add(name);
  const names = [...shown].sort();
  const promised = Object.fromEntries((state.status?.tenants ?? []).map((tenant) => [tenant.name, tenant.promised_ms.burst]));
  const series = (value, more = () => ({})) =>
    names.map((name) => ({
      name, color: colorOf(name), values: points.map((point) => (name in point.tenants ? value(point.tenants[name]) : null)), ...more(name),
    }));
  charts.sms.show(times, series((one) => one.sms), from, to);
  charts.latency.show(times, series((one) => one.p99_ms, (name) => ({ promise: promised[name] })), from, to);
  charts.memory.show(times, series((one) => one.memory), from, to);
  charts.throttled.show(times, series((one) => one.throttled), from, to);
  strips.show(points, names, colorOf, (state.status?.devices ?? []).map((device) => device.sm_count), from, to);
  byId("legend").replaceChildren(...names.map((name) => element("li", { title: name }, dotOf(name), nameOf(name))));
}

// ---- the present state

function fact(name, value) {
  return element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }));
}

function tile(title, value, more, share) {
  const meter = element("div", { className: "meter" });
  meter.append(element("i", { style: { width: `${Math.min(100, share * 100)}%` } }));
  const shown = element("div", { className: "value" }, value, " ", element("small", { textContent: more }));
  return element("div", { className: "card tile" }, element("h3", { textContent: title }), shown, meter);
}

function showTiles(status) {
  const latest = state.points.at(-1);
  const sms = status.devices.reduce((sum, device) => sum + device.sm_count, 0);
  const total = status.devices.reduce((sum, device) => sum + device.memory.total, 0);
  const used = status.devices.reduce((sum, device) => sum + device.memory.used, 0);
  const share = latest ? Math.min(1, Object.values(latest.tenants).reduce((sum, one) => sum + one.sms, 0)) : 0;
  const throttled = status.sessions.filter((session) => session.throttled).length;
  const open = status.sessions.filter((session) => session.open).length;
  byId("tiles").replaceChildren(
    tile("SMs in use", percent(share), `of ${count(sms)}`, share),
    tile("Device memory", bytes(used), `of ${bytes(total)}`, total === 0 ? 0 : used / total),
    tile("Sessions", count(open), `of ${count(status.max_sessions)}`, open / Math.max(1, status.max_sessions)),
    tile("Throttled now", count(throttled), throttled === 1 ? "session waits" : "sessions wait", open === 0 ? 0 : throttled / open),
  );
}

function showMap(status) {
  const devices = status.devices.map((device, index) => {
    const bars = element("div", { className: "bars" });
    const ranges = new Map();
    for (const session of status.sessions) {
      for (const place of session.devices) {
        if (place.device !== index || place.sm_count === 0) continue;
        const key = `${place.first_sm} ${place.sm_count}`;
        if (!ranges.has(session.tenant)) ranges.set(session.tenant, new Map());
        const known = ranges.get(session.tenant).get(key);
        ranges.get(session.tenant).set(key, { first: place.first_sm, count: place.sm_count, throttled: (known?.throttled ?? true) && place.throttled });
      }
    }
    for (const name of [...ranges.keys()].sort()) {
      const bar = element("div", { className: "bar" });
      const texts = [];
      for (const range of ranges.get(name).values()) {
        bar.append(element("i", {
          className: range.throttled ? "throttled" : state.points.at(-1)?.tenants[name]?.sms > 0 ? "" : "idle",
          style: { left: `${(range.first / device.sm_count) * 100}%`, width: `${(range.count / device.sm_count) * 100}%`, background: colorOf(name) },
        }));
        texts.push(`${range.first}–${range.first + range.count - 1}${range.throttled ? " (throttled)" : ""}`);
      }
      bar.title = `${name}: SMs ${texts.join(", ")}`;
      bars.append(who(name), bar);
    }
    const scale = element("div", { className: "scale" });
    for (let i = 0; i <= 4; ++i) scale.append(element("span", { textContent: String(Math.round(((device.sm_count - 1) / 4) * i)) }));
    bars.append(scale);
    const preemption = device.preemption.mode === "none" ? "no preemption" : `preemption by ${device.preemption.mode}, ${count(device.preemption.latency_us)} µs`;
    const others = device.beside_native ? " · beside programs outside of DetShare" : "";
    const state_ = device.healthy ? "" : ` · ${device.state}`;
    const title = element("h3", {}, `GPU ${index} `, element("span", { textContent: `${device.name} · ${device.sm_count} SMs · ${bytes(device.memory.used)} of ${bytes(device.memory.total)} · ${preemption}${others}${state_}`, title: device.preemption.reason }));
    const content = ranges.size > 0 ? bars : element("p", { className: "empty", textContent: "No session is on this device." });
    return element("div", { className: "device" }, title, content);
  });
  const none = element("p", { className: "empty", textContent: "No engine runs: nobody uses the devices." });
  byId("map").replaceChildren(...(devices.length > 0 ? devices : [none]));
}

// columns: [title, number?, term?], where the term explains the title; rows: lists of nodes or texts, or {text, className}.
function fillTable(table, columns, rows, empty) {
  if (rows.length === 0) {
    table.replaceChildren(element("tbody", {}, element("tr", {}, element("td", { className: "empty", textContent: empty }))));
    return;
  }
  const className = (i) => (columns[i][1] ? "number" : "");
  const head = element("tr", {}, ...columns.map(([title, , term = title], i) =>
    element("th", { textContent: title, className: className(i), scope: "col", title: TERMS[term] ?? "" })));
  const body = rows.map((row) =>
    element("tr", {}, ...row.map((cell, i) => {
      const { text, className: more = "" } = cell instanceof Node || typeof cell === "string" ? { text: cell } : cell;
      const made = element("td", { className: `${className(i)} ${more}`.trim() });
      made.append(text);
      if (more === "program") made.title = text;
      if (cell.title !== undefined) made.title = cell.title;
      return made;
    })),
  );
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

function tail(figures, promised) {
  if (figures === null) return ["–", "–"];
  const late = promised !== null && promised !== undefined && figures.p99_ms > promised;
  return [milliseconds(figures.p50_ms), late ? { text: milliseconds(figures.p99_ms), className: "late" } : milliseconds(figures.p99_ms)];
}

function showTenants(status) {
  const latest = state.points.at(-1)?.tenants ?? {};
  const owned = status.tenants.some((tenant) => tenant.owner !== null);
  const rows = status.tenants.map((tenant) => {
    const now = latest[tenant.name];
    const name = who(tenant.name);
    return [
      name,
      ...(owned ? [{ text: shortened(tenant.owner?.text ?? "–", MOST_OF_AN_OWNER), title: tenant.owner?.text ?? "" }] : []),
      tenant.class === "unset" ? "–" : element("span", { className: "tag", textContent: tenant.class }),
      count(tenant.sessions),
      percent(now?.sms ?? 0),
      rate(now?.operations ?? 0),
      bytes(tenant.device_memory),
      tenant.swapped_memory === 0 ? "–" : bytes(tenant.swapped_memory),
      ...tail(tenant.recent.bursts, tenant.promised_ms.burst),
      tail(tenant.recent.first_tokens, tenant.promised_ms.first_token)[1],
      tail(tenant.recent.tokens, tenant.promised_ms.token)[1],
      tenant.recent.late > 0 ? { text: count(tenant.recent.late), className: "late" } : "0",
      count(tenant.migrations),
      count(tenant.faults),
    ];
  });
  fillTable(byId("tenants"), [
    ["Tenant"], ...(owned ? [["Owner"]] : []), ["Class"], ["Sessions", true, "Session"], ["SMs", true, "SMs in use"], ["Operations/s", true], ["Memory", true],
    ["Swapped", true], ["Burst p50", true, "Burst"], ["Burst p99", true, "Burst"], ["TTFT p99", true, "TTFT"], ["TPOT p99", true, "TPOT"], ["Late", true],
    ["Migrations", true], ["Faults", true],
  ], rows, "No tenant has opened a session yet. Start a program with: detshare run -- PROGRAM");
}

function showWaits(status) {
  const waits = status.tenants.flatMap((tenant) => tenant.recent.waits_for.map((one) => ({ tenant: tenant.name, for: one.for, seconds: one.seconds })));
  waits.sort((a, b) => b.seconds - a.seconds);
  if (waits.length === 0) {
    byId("waits").replaceChildren(element("p", { className: "empty", textContent: "Nobody waited in the last minute." }));
    return;
  }
  const max = waits[0].seconds;
  byId("waits").replaceChildren(...waits.slice(0, 12).map((wait) => {
    const own = wait.tenant === wait.for;
    const pair = element("div", { className: "pair" }, who(wait.tenant), element("span", { textContent: own ? "for work of its own" : "for" }));
    if (!own) pair.append(who(wait.for));
    const meter = element("div", { className: "meter" }, element("i", { style: { width: `${(wait.seconds / max) * 100}%`, background: colorOf(wait.for) } }));
    return element("div", { className: "wait" }, pair, meter, element("div", { className: "number", textContent: milliseconds(wait.seconds * 1000) }));
  }));
}

// "all", "urgent (bound)", or with several devices "0: all, 1: sm0-63".
function partitionsOf(session, several) {
  const places = session.devices.filter((place) => place.partition !== "");
  if (places.length === 0) return "–";
  return places.map((place) => `${several ? `${place.device}: ` : ""}${place.partition}${place.bound ? " (bound)" : ""}`).join(", ");
}

function showSessions(status) {
  const several = status.devices.length > 1;
  const isolated = status.engines.length > 0;
  const rows = [...status.sessions].sort((a, b) => a.session - b.session).map((session) => [
    count(session.session),
    ...(isolated ? [session.group ?? "–"] : []),
    who(session.tenant),
    { text: session.program === "" ? "–" : session.program, className: "program" },
    session.pid === 0 ? "–" : String(session.pid),
    partitionsOf(session, several),
    element("span", { className: session.state === "faulted" ? "tag bad" : "tag", textContent: session.throttled ? "throttled" : session.state }),
    count(session.operations),
    bytes(session.device_memory),
    duration(session.age_ms / 1000),
  ]);
  fillTable(byId("sessions"), [
    ["Session"], ...(isolated ? [["Isolation group"]] : []), ["Tenant"], ["Program"], ["PID", true], [several ? "Device: partition" : "Partition"], ["State"], ["Operations", true], ["Memory", true], ["Age", true],
  ], rows, "No session is open.");
  byId("sessions-hint").textContent = status.refused > 0 ? `${count(status.refused)} refused since the daemon began` : "";
}

// Engines, if there are several.
function showEngines(status) {
  byId("engines-card").hidden = status.engines.length === 0;
  const rows = status.engines.map((engine) => [
    engine.group,
    element("span", { className: engine.runs && !engine.responds ? "tag bad" : "tag", textContent: !engine.runs ? "not running" : engine.responds ? "running" : "does not reply" }),
    count(engine.sessions),
    count(engine.starts),
    engine.failures > 0 ? { text: count(engine.failures), className: "late" } : "0",
  ]);
  fillTable(byId("engines"), [["Isolation group"], ["Engine"], ["Sessions", true], ["Begun", true], ["Failed", true]], rows, "No engine has run.");
}

function showStatus(status) {
  for (const tenant of status.tenants) colorOf(tenant.name);
  const healthy = status.devices.every((device) => device.healthy);
  const pill = byId("health");
  pill.textContent = healthy ? "serving" : "a device is lost";
  pill.className = healthy ? "pill good" : "pill bad";
  const facts = [fact("policy", status.policy), fact("version", status.version), fact("up", duration(status.uptime_seconds))];
  if (status.engines.length > 0) facts.unshift(fact("engines", String(status.engines.length)));
  if (status.backend === "soft") facts.unshift(fact("backend", "software GPU"));
  if (status.device_losses > 0) facts.push(fact("device losses", count(status.device_losses)));
  byId("facts").replaceChildren(...facts);
  showTiles(status);
  showMap(status);
  showTenants(status);
  showWaits(status);
  showSessions(status);
  showEngines(status);
}

// ---- asking the daemon

async function ask(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

function adopt(status, points) {
  // A daemon that was started again numbers its points from the beginning.
  const began = status.unix_ms - status.uptime_seconds * 1000;
  if (state.began !== null && Math.abs(began - state.began) > 5000) {
    state.last = 0;
    state.points.push(...points);
  } else if (points.length > 0 && points[0].number <= state.last) {
    state.points = points;
  } else {
    state.points.push(...points);
  }
  state.began = began;
  state.points = state.points.slice(-MOST_POINTS);
  if (points.length > 0) state.last = points.at(-1).number;
  state.status = status;
}

async function refresh() {
  let status;
  let history;
  try {
    [status, history] = await Promise.all([ask("/api/v1/status"), ask(`/api/v1/history?after=${state.last}`)]);
  } catch {
    const pill = byId("health");
    pill.textContent = "no reply";
    pill.className = "pill bad";
    const since = state.status === null ? "" : ` What you see is of ${clock(state.status.unix_ms)}.`;
    byId("problem").textContent = `The daemon does not reply.${since} Asking again every second.`;
    byId("problem").hidden = false;
    byId("main").classList.add("stale");
    return;
  }
  adopt(status, history.points);
  byId("problem").hidden = true;
  byId("main").classList.remove("stale");
  showStatus(status);
  drawCharts();
  byId("main").setAttribute("aria-busy", "false");
}

async function run() {
  for (;;) {
    if (!document.hidden) await refresh();
    await new Promise((resume) => setTimeout(resume, PERIOD_MS));
  }
}

for (const button of document.querySelectorAll(".switch button")) {
  button.addEventListener("click", () => {
    state.minutes = Number(button.dataset.minutes);
    for (const other of document.querySelectorAll(".switch button")) other.setAttribute("aria-pressed", String(other === button));
    drawCharts();
  });
}

narrow.addEventListener("change", () => {
  if (state.status === null) return;
  showStatus(state.status);
  drawCharts();
});

byId("terms").replaceChildren(...Object.entries(TERMS).flatMap(([term, meaning]) => [
  element("dt", { textContent: term }), element("dd", { textContent: meaning }),
]));

run();
