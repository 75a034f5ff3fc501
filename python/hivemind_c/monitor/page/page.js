// Draws what /api/run and /api/history say. Peers' texts go into the page as text (textContent), never as markup.
"use strict";

const PERIOD_MS = 500, POINTS = 1200, SVG = "http://www.w3.org/2000/svg";
const at = id => document.getElementById(id);
const number = (value, digits = 0) =>
  value === null || value === undefined ? "–" : value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

function duration(seconds) {
  if (seconds === null) return "–";
  const s = Math.floor(seconds), m = Math.floor(s / 60), h = Math.floor(m / 60);
  return h ? `${h} h ${m % 60} min` : m ? `${m} min ${s % 60} s` : `${s} s`;
}

function row(cells, kind, hint) {
  const tr = document.createElement("tr");
  if (kind) tr.className = kind;
  if (hint) tr.title = hint;
  for (const cell of cells) {
    const td = document.createElement("td");
    if (cell instanceof Node) td.append(cell); else td.textContent = cell;
    tr.append(td);
  }
  return tr;
}

function share(part) {
  const meter = document.createElement("meter");
  meter.value = part;
  meter.textContent = meter.title = `${Math.round(100 * part)}%`;
  return meter;
}

// A peer's latest epoch: how long it took and how much of that was computing; all its numbers are the hint.
function epochOf(peer, names) {
  const span = document.createElement("span"), last = peer.last && Object.fromEntries(names.map((name, i) => [name, peer.last[i]]));
  span.textContent = last ? `${number(last.wall_s, 1)} s, ${Math.round(100 * last.computing_s / Math.max(last.wall_s, 1e-9))}% computing` : "–";
  if (last) span.title = Object.entries(last).map(([name, value]) => `${name} ${number(value, Number.isInteger(value) ? 0 : 3)}`).join(", ");
  return span;
}

function chart(id, points, value, digits) {
  const known = points.filter(point => value(point) !== null);
  const svg = at(`${id}-chart`), path = document.createElementNS(SVG, "path");
  if (known.length > 1) {
    const values = known.map(value), low = Math.min(...values), high = Math.max(...values);
    const first = known[0][0], last = known[known.length - 1][0];
    const x = time => 600 * (time - first) / Math.max(last - first, 1e-9), y = v => 174 - 168 * (v - low) / Math.max(high - low, 1e-9);
    path.setAttribute("d", known.map((point, i) => `${i ? "L" : "M"}${x(point[0]).toFixed(1)} ${y(value(point)).toFixed(1)}`).join(""));
    at(`${id}-range`).textContent = `${number(low, digits)} to ${number(high, digits)} over ${duration(last - first)}`;
  }
  svg.dataset.points = known.length;
  svg.replaceChildren(path);
}

function show(run) {
  at("join").textContent = run.join;
  if (run.waiting) return;
  document.title = `${run.run_id}: swarm epoch ${run.epoch}`;
  at("run").textContent = run.run_id;
  at("epoch").textContent = number(run.epoch);
  at("progress").max = run.target;
  at("progress").value = run.samples;
  at("samples").textContent = `${number(run.samples)} of ${number(run.target)} samples`;
  at("eta").textContent = duration(run.eta);
  at("speed").textContent = number(run.speed);
  at("peers").textContent = number(run.num_peers);
  at("clients").textContent = run.num_clients ? `${number(run.num_clients)} only dial out` : "";
  at("loss").textContent = number(run.loss, 4);
  at("peer-rows").replaceChildren(...run.peers.map(peer => row([
    peer.peer_id.slice(-8), peer.membership ? `${peer.name} ${peer.membership}` : peer.name, peer.role, peer.version, number(peer.epoch), number(peer.samples), share(peer.share),
    number(peer.speed, 1), number(peer.loss, 4), number(peer.rounds), number(peer.failures), epochOf(peer, run.numbers),
    peer.doubt || peer.differs || peer.loading || peer.troubles[0] || `${Math.round(peer.age)} s ago`,
  ], peer.doubt ? "doubt" : peer.differs ? "differs" : peer.troubles.length ? "trouble" : "", peer.peer_id)));
  at("more").textContent = run.more_peers ? `and ${number(run.more_peers)} more` : "";
  at("silent").textContent = run.silent.length ? `Members that say nothing of this run: ${run.silent.map(([peer, membership]) => `${peer.slice(-8)} ${membership}`).join(", ")}` : "";
  at("advice").textContent = run.advice;
  at("failure-rows").replaceChildren(...run.failures.map(failure => row([
    new Date(1000 * failure.time).toLocaleTimeString("en-GB"), failure.peer_id.slice(-8), number(failure.epoch), failure.text,
  ])));
  const age = run.look_age, old = age > 30;
  at("state").textContent = old ? `the monitor has not looked for ${duration(age)}` : run.whole ? "live" : "live, peers still coming in";
  at("state").className = old ? "stale" : "";
}

let points = [];

async function look() {
  try {
    const after = points.length ? points[points.length - 1][0] : 0;
    const [run, news] = await Promise.all(["api/run", `api/history?after=${after}`].map(path => fetch(path).then(answer => answer.json())));
    points = points.concat(news);
    while (points.length > POINTS) points = points.filter((_, i) => i > points.length / 2 || i % 2);
    show(run);
    chart("loss", points, point => point[4], 3);
    chart("speed", points, point => point[3], 0);
  } catch (error) {
    at("state").textContent = "the monitor does not answer";
    at("state").className = "stale";
  }
  setTimeout(look, PERIOD_MS);
}

look();
