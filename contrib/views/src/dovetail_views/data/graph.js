"use strict";
// Draws the graphs in #data: { title, views: { model, plan } }, each { nodes, edges }; see graph_page.py for the fields.
const data = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
const LARGE = 400; // nodes of a model from which the page opens with the plan alone
const PART = 40; // nodes that are laid out together at most
const ROW = 15;
const LETTER = 5.2; // width of a letter of an edge's label
const PLANNED = "computed while planning"; // nodes of the model that no node of the plan runs
const GREY = "#d7dce2";
const palette = ["#9ecae9", "#ffbf79", "#a1d99b", "#e8a5c0", "#c5b0d5", "#f2df74", "#9fd6d2", "#d3b59a", "#b8c4d0", "#d5e06b"];
const state = { view: "both", colour: "device", selected: null };
const panes = {};

function el(parent, name, attributes = {}, text) {
  const made = parent.namespaceURI === NS || name === "g" ? document.createElementNS(NS, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  parent.appendChild(made);
  return made;
}

function shortened(text, limit) {
  return text.length <= limit ? text : "…" + text.slice(text.length - limit + 1);
}

// --- layout ------------------------------------------------------------------------------------------------------

function rows(node) {
  return node.open ? node.origins : [];
}

// Layout takes time that grows with the square of the nodes, so larger graphs are cut, in the order in which nodes run and where
// the fewest edges cross, into parts that are laid out by themselves and stand one below the other.
function laidOut(view) {
  const order = sorted(view), place = new Map(order.map((id, index) => [id, index]));
  const edges = view.edges.filter((edge) => edge.from !== edge.to);
  const laid = { boxes: new Map(), lines: [], width: 0, height: 0 };
  let start = 0;
  for (const end of cuts(order.length, edges, place)) {
    addPart(laid, view, order.slice(start, end), edges.filter((e) => place.get(e.to) >= start && place.get(e.to) < end), (id) => place.get(id) >= start);
    start = end;
  }
  const boxes = [...laid.boxes.values()], left = Math.min(0, ...boxes.map((box) => box.x - box.width / 2));
  for (const box of boxes) box.x -= left;
  for (const line of laid.lines) for (const point of [...line.points, line.label]) point.x -= left;
  laid.width = Math.max(0, ...boxes.map((box) => box.x + box.width / 2));
  return laid;
}

function sorted(view) {
  const after = view.nodes.map(() => []), waiting = view.nodes.map(() => 0), found = [];
  for (const { from, to } of view.edges) { after[from].push(to); waiting[to] += 1; }
  // The latest that became free first: what belongs together stays together.
  const free = view.nodes.filter((node) => waiting[node.id] === 0).map((node) => node.id).reverse();
  while (free.length) {
    const id = free.pop();
    found.push(id);
    for (const next of after[id].slice().reverse()) if (--waiting[next] === 0) free.push(next);
  }
  return found.length === view.nodes.length ? found : view.nodes.map((node) => node.id);
}

function cuts(count, edges, place) {
  const crossing = new Array(count + 1).fill(0);
  for (const { from, to } of edges) { crossing[place.get(from) + 1] += 1; crossing[place.get(to) + 1] -= 1; }
  for (let i = 1; i <= count; i += 1) crossing[i] += crossing[i - 1];
  const found = [];
  for (let start = 0; count - start > PART; ) {
    let best = start + PART;
    for (let i = start + PART; i >= start + PART / 3; i -= 1) if (crossing[i] < crossing[best]) best = i;
    found.push((start = best));
  }
  return [...found, count];
}

function addPart(laid, view, ids, edges, isInside) {
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 30, ranker: "tight-tree" });
  for (const id of ids) graph.setNode(id, { width: 170, height: 34 + ROW * rows(view.nodes[id]).length });
  for (const edge of edges) if (isInside(edge.from)) graph.setEdge(edge.from, edge.to, { edge, width: LETTER * (edge.label?.length ?? 0), height: 10, labelpos: "c" });
  // Of large graphs the crossings within a part are not minimized: that takes half of the time.
  dagre.layout(graph, { disableOptimalOrderHeuristic: view.nodes.length > LARGE });
  const above = edges.find((edge) => !isInside(edge.from));
  const dx = above ? laid.boxes.get(above.from).x - graph.node(above.to).x : 0, dy = laid.height;
  for (const id of ids) { const { x, y, width, height } = graph.node(id); laid.boxes.set(id, { x: x + dx, y: y + dy, width, height }); }
  for (const key of graph.edges()) {
    const { edge, points, x, y } = graph.edge(key);
    laid.lines.push({ edge, points: points.map((p) => ({ x: p.x + dx, y: p.y + dy })), label: { x: x + dx, y: y + dy } });
  }
  for (const edge of edges) {
    if (isInside(edge.from)) continue;
    const source = laid.boxes.get(edge.from), target = laid.boxes.get(edge.to);
    const points = [{ x: source.x, y: source.y + source.height / 2 }, { x: target.x, y: target.y - target.height / 2 }];
    laid.lines.push({ edge, points, label: { x: (points[0].x + points[1].x) / 2, y: (points[0].y + points[1].y) / 2 } });
  }
  laid.height += graph.graph().height + 30;
}

// --- colours -----------------------------------------------------------------------------------------------------

function parts(node) {
  // A node of the model has the colour of the node of the plan that runs it.
  return node.plan === undefined ? node : data.views.plan.nodes[node.plan[0]];
}

function keyOf(node) {
  const run = parts(node);
  if (run === undefined) return PLANNED;
  return state.colour === "device" ? run.device : run.kernel;
}

const longest = Math.max(0, ...data.views.plan.nodes.map((node) => node.time ?? 0));

function colourOf(node) {
  if (state.colour === "time") {
    const time = parts(node)?.time;
    if (time === undefined || time === null || longest === 0) return GREY;
    const part = Math.sqrt(time / longest);
    return `hsl(${Math.round(50 - 50 * part)} ${Math.round(40 + 55 * part)}% ${Math.round(88 - 28 * part)}%)`;
  }
  const key = keyOf(node);
  return key === PLANNED ? GREY : palette[keys().indexOf(key) % palette.length];
}

let known = {};
function keys() {
  known[state.colour] ??= [...new Set(data.views.plan.nodes.map((node) => (state.colour === "device" ? node.device : node.kernel)))];
  return known[state.colour];
}

function legend() {
  const footer = document.getElementById("legend");
  footer.replaceChildren();
  if (state.colour === "time") {
    el(footer, "span", {}, longest ? `yellow: little, red: up to ${shownTime(longest)} a run` : "not measured: dovetail graph --time");
    return;
  }
  const shown = keys().slice(0, 24).map((key, index) => [key, palette[index % palette.length]]);
  if (data.views.model.nodes.some((node) => parts(node) === undefined)) shown.push([PLANNED, GREY]);
  for (const [key, colour] of shown) {
    const item = el(footer, "span");
    el(item, "span", { class: "swatch", style: `background:${colour}` });
    item.append(key);
  }
}

function shownTime(nanoseconds) {
  return nanoseconds >= 1e6 ? `${(nanoseconds / 1e6).toFixed(2)} ms` : `${(nanoseconds / 1e3).toFixed(1)} µs`;
}

// --- drawing -----------------------------------------------------------------------------------------------------

function draw(name) {
  const view = data.views[name], svg = document.querySelector(`#pane-${name} svg`);
  const graph = laidOut(view);
  svg.replaceChildren();
  const world = el(svg, "g");
  const pane = (panes[name] = { svg, world, graph, boxes: new Map(), scale: 1, x: 0, y: 0, ...(panes[name]?.scale && { scale: panes[name].scale, x: panes[name].x, y: panes[name].y }) });
  const fragment = document.createDocumentFragment();
  const edges = document.createElementNS(NS, "g"), nodes = document.createElementNS(NS, "g");
  fragment.append(edges, nodes);
  for (const line of graph.lines) drawEdge(edges, line);
  for (const node of view.nodes) pane.boxes.set(node.id, drawNode(nodes, node, graph.boxes.get(node.id), name));
  world.append(fragment);
  move(pane);
}

function drawEdge(parent, laid) {
  const group = el(parent, "g", { class: laid.edge.inside ? "edge inside" : "edge" });
  el(group, "path", { d: "M" + laid.points.map((p) => `${p.x.toFixed(1)},${p.y.toFixed(1)}`).join("L") });
  if (laid.edge.label) el(group, "text", { x: laid.label.x, y: laid.label.y + 3 }, laid.edge.label);
  if (laid.edge.title) el(group, "title", {}, laid.edge.title);
}

function drawNode(parent, node, box, name) {
  const merged = node.plan === undefined && node.origins.length > 1;
  const kind = ["node", merged ? "merged" : "", node.holds ? "holder" : ""].join(" ").trim();
  const group = el(parent, "g", { class: kind, transform: `translate(${box.x - box.width / 2},${box.y - box.height / 2})`, "data-name": node.name });
  el(group, "rect", { width: box.width, height: box.height, fill: colourOf(node) });
  el(group, "text", { x: box.width / 2, y: 14 }, shortened(node.op + (merged ? ` + ${node.origins.length - 1}` : ""), 26));
  const below = node.plan === undefined ? `${node.device} ${node.kernel}` : node.name;
  el(group, "text", { x: box.width / 2, y: 27, class: "kernel" }, shortened(below, 32));
  rows(node).forEach((origin, index) => el(group, "text", { x: box.width / 2, y: 40 + ROW * index, class: "kernel" }, "▸ " + shortened(origin, 28)));
  el(group, "title", {}, node.name);
  group.addEventListener("click", (event) => { event.stopPropagation(); select(name, node.id); });
  group.addEventListener("dblclick", (event) => { event.stopPropagation(); if (merged) toggle(name, node); });
  return group;
}

function recolour() {
  for (const [name, pane] of Object.entries(panes)) {
    for (const node of data.views[name].nodes) pane.boxes.get(node.id).querySelector("rect").setAttribute("fill", colourOf(node));
  }
  legend();
}

function toggle(name, node) {
  node.open = !node.open;
  draw(name);
  mark();
  show();
}

// --- zoom and pan ------------------------------------------------------------------------------------------------

function move(pane) {
  pane.world.setAttribute("transform", `translate(${pane.x},${pane.y}) scale(${pane.scale})`);
  pane.svg.classList.toggle("far", pane.scale < 0.55);
  pane.svg.classList.toggle("very-far", pane.scale < 0.2);
}

function fit(pane, least = 0.02) {
  const { width, height } = pane.graph, area = pane.svg.getBoundingClientRect();
  if (!width || !area.width) return;
  pane.scale = Math.min(1.2, Math.max(least, Math.min(area.width / (width + 40), area.height / (height + 60))));
  // Around the first node where not all of the width is in view: the middle of it can be empty.
  const first = [...pane.graph.boxes.values()].reduce((one, other) => (other.y < one.y ? other : one));
  const middle = width * pane.scale > area.width ? first.x : width / 2;
  pane.x = area.width / 2 - middle * pane.scale;
  pane.y = Math.max(24, (area.height - height * pane.scale) / 2);
  move(pane);
}

function centre(pane, id) {
  const box = pane.graph.boxes.get(id), area = pane.svg.getBoundingClientRect();
  pane.scale = Math.max(pane.scale, 0.8);
  pane.x = area.width / 2 - box.x * pane.scale;
  pane.y = area.height / 2 - box.y * pane.scale;
  move(pane);
}

function zoom(pane, factor, x, y) {
  const scale = Math.min(4, Math.max(0.02, pane.scale * factor));
  pane.x = x - ((x - pane.x) * scale) / pane.scale;
  pane.y = y - ((y - pane.y) * scale) / pane.scale;
  pane.scale = scale;
  move(pane);
}

function listen(pane) {
  const svg = pane.svg;
  const here = (event) => { const area = svg.getBoundingClientRect(); return [event.clientX - area.left, event.clientY - area.top]; };
  svg.addEventListener("wheel", (event) => { event.preventDefault(); zoom(current(svg), Math.exp(-event.deltaY / 400), ...here(event)); }, { passive: false });
  svg.addEventListener("pointerdown", (event) => {
    const start = [event.clientX, event.clientY], at = current(svg), from = [at.x, at.y];
    const drag = (moved) => { at.x = from[0] + moved.clientX - start[0]; at.y = from[1] + moved.clientY - start[1]; move(at); };
    const stop = () => { window.removeEventListener("pointermove", drag); window.removeEventListener("pointerup", stop); };
    window.addEventListener("pointermove", drag);
    window.addEventListener("pointerup", stop);
  });
  svg.addEventListener("keydown", (event) => {
    const pane = current(svg), area = svg.getBoundingClientRect(), step = 60;
    const moves = { ArrowLeft: [step, 0], ArrowRight: [-step, 0], ArrowUp: [0, step], ArrowDown: [0, -step] };
    if (moves[event.key]) { pane.x += moves[event.key][0]; pane.y += moves[event.key][1]; move(pane); }
    else if (event.key === "+" || event.key === "-") zoom(pane, event.key === "+" ? 1.25 : 0.8, area.width / 2, area.height / 2);
  });
}

function current(svg) {
  return Object.values(panes).find((pane) => pane.svg === svg);
}

// --- selection ---------------------------------------------------------------------------------------------------

function partners(name, id) {
  const node = data.views[name].nodes[id];
  return name === "model" ? { plan: node.plan } : { model: node.model };
}

function select(name, id, focus = false) {
  state.selected = { name, id };
  mark();
  show();
  for (const [other, ids] of Object.entries(partners(name, id))) if (ids.length && visible(other)) centre(panes[other], ids[0]);
  if (focus && visible(name)) centre(panes[name], id);
  remember();
}

// The address leads back to what is shown.
function remember() {
  const shown = new URLSearchParams({ view: state.view });
  if (state.colour !== "device") shown.set("colour", state.colour);
  if (state.selected) shown.set("node", data.views[state.selected.name].nodes[state.selected.id].name);
  history.replaceState(null, "", `#${shown}`);
}

function mark() {
  document.querySelectorAll(".selected, .related").forEach((box) => box.classList.remove("selected", "related"));
  if (!state.selected) return;
  const { name, id } = state.selected;
  panes[name].boxes.get(id)?.classList.add("selected");
  for (const [other, ids] of Object.entries(partners(name, id))) for (const one of ids) panes[other]?.boxes.get(one)?.classList.add("related");
}

function visible(name) {
  return state.view === "both" || state.view === name;
}

function pairs(parent, entries) {
  const list = el(parent, "dl");
  for (const [key, value] of entries) if (value !== undefined && value !== null && value !== "") { el(list, "dt", {}, key); el(list, "dd", {}, String(value)); }
}

function links(parent, title, name, ids) {
  if (!ids.length) return;
  el(parent, "h4", {}, title);
  const list = el(parent, "ul");
  for (const id of ids) {
    const node = data.views[name].nodes[id];
    const button = el(el(list, "li"), "button", { class: "link", type: "button" }, `${node.name} (${node.op})`);
    button.addEventListener("click", () => { if (!visible(name)) setView("both"); select(name, id, true); });
  }
}

function listed(parent, title, items) {
  if (!items.length) return;
  el(parent, "h4", {}, title);
  const list = el(parent, "ul");
  for (const item of items) el(el(list, "li"), "code", {}, item);
}

function show() {
  const aside = document.getElementById("details");
  aside.replaceChildren();
  if (!state.selected) {
    el(aside, "p", {}, "Click a node. Double-click one with a thick border to see which nodes of the model were merged into it.");
    pairs(aside, data.facts);
    return;
  }
  const { name, id } = state.selected, node = data.views[name].nodes[id];
  el(aside, "h3", {}, node.name);
  if (name === "plan") {
    pairs(aside, [["operator", node.op], ["device", node.device], ["kernel", node.kernel], ["package", node.provider], ["post-ops", node.post_ops.join(", ")],
      ["time", node.time ? `${shownTime(node.time)} a run` : ""], ["FLOPs", node.flops?.toLocaleString("en")]]);
    if (node.origins.length > 1) {
      const button = el(aside, "button", { type: "button", id: "open" }, node.open ? "Close" : "Open into the merged nodes");
      button.addEventListener("click", () => toggle("plan", node));
    }
    links(aside, "Nodes of the model", "model", node.model);
  } else {
    pairs(aside, [["operator", node.op]]);
    if (node.attributes.length) { el(aside, "h4", {}, "Attributes"); pairs(aside, node.attributes); }
    links(aside, "Runs as", "plan", node.plan);
    if (!node.plan.length) el(aside, "p", {}, "Computed while planning, merged away or not needed.");
  }
  listed(aside, "Inputs", node.inputs);
  listed(aside, "Outputs", node.outputs);
  if (name === "plan") {
    if (node.stop) { el(aside, "h4", {}, "Why no further node was merged"); el(aside, "p", { class: "stop" }, node.stop); }
    listed(aside, "Refused by", node.refusals);
  }
}

// --- controls ----------------------------------------------------------------------------------------------------

function setView(view) {
  state.view = view;
  for (const button of document.querySelectorAll("#views button")) button.setAttribute("aria-pressed", String(button.dataset.view === view));
  for (const name of ["model", "plan"]) {
    document.getElementById(`pane-${name}`).hidden = !visible(name);
    if (visible(name) && !panes[name]) { draw(name); listen(panes[name]); }
  }
  // A large graph begins at its top, at a size that can be read.
  for (const name of ["model", "plan"]) if (visible(name)) fit(panes[name], 0.7);
  mark();
}

function search(text) {
  const wanted = text.trim().toLowerCase();
  let hits = 0, first = null;
  for (const name of ["plan", "model"]) {
    if (!visible(name)) continue;
    for (const node of data.views[name].nodes) {
      const hit = [node.name, node.op, node.kernel ?? ""].some((part) => part.toLowerCase().includes(wanted));
      panes[name].boxes.get(node.id).classList.toggle("miss", wanted !== "" && !hit);
      if (wanted && hit) { hits += 1; const exact = node.name.toLowerCase() === wanted; if (!first || (exact && !first.exact)) first = { name, id: node.id, exact }; }
    }
  }
  document.getElementById("hits").textContent = wanted ? `${hits} found` : "";
  return first;
}

function follow() {
  const wanted = new URLSearchParams(location.hash.slice(1)), colour = document.getElementById("colour");
  if ([...colour.options].some((option) => option.value === wanted.get("colour"))) state.colour = colour.value = wanted.get("colour");
  setView(["model", "plan", "both"].includes(wanted.get("view")) ? wanted.get("view") : data.views.model.nodes.length > LARGE ? "plan" : "both");
  for (const name of state.view === "model" ? ["model", "plan"] : ["plan", "model"]) {
    const node = data.views[name].nodes.find((one) => one.name === wanted.get("node"));
    if (node) { if (!visible(name)) setView("both"); select(name, node.id, true); return; }
  }
  show();
}

document.getElementById("title").textContent = data.title;
for (const button of document.querySelectorAll("#views button")) button.addEventListener("click", () => setView(button.dataset.view));
document.getElementById("colour").addEventListener("change", (event) => { state.colour = event.target.value; recolour(); remember(); });
const box = document.getElementById("search");
box.addEventListener("input", () => search(box.value));
box.addEventListener("keydown", (event) => { if (event.key === "Enter") { const hit = search(box.value); if (hit) select(hit.name, hit.id, true); } });
document.getElementById("fit").addEventListener("click", () => { for (const name of ["model", "plan"]) if (visible(name)) fit(panes[name]); });
window.addEventListener("hashchange", () => { follow(); recolour(); });
follow();
recolour();
document.body.dataset.ready = String(Math.round(performance.now()));
