// Draws every figure.chart and figure.pairs from the values inside it, and again when its width changes.

const SVG = "http://www.w3.org/2000/svg";

function make(parent, name, attributes = {}, text = "") {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  parent.append(node);
  return node;
}

function element(parent, name, className = "", text = "") {
  const node = document.createElement(name);
  if (className) node.className = className;
  if (text) node.textContent = text;
  parent.append(node);
  return node;
}

function formatted(value, digits = 4) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text =
    size >= 1e5 || size < 1e-4 ? value.toExponential(Math.max(digits - 3, 0)).replace("e+", "e") :
    size >= 1000 ? Math.round(value).toLocaleString("en") :
    String(Number(value.toPrecision(digits)));
  return text.replace("-", "\u2212");
}

function linearTicks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
  if (!(last - first < 100)) return [low]; // values so close for their size that no step leads from one to the next
  return Array.from({ length: last - first + 1 }, (_, number) => Number(((first + number) * step).toPrecision(12)));
}

function logTicks(low, high) {
  const factors = Math.log10(high / low) < 1.7 ? [1, 2, 5] : [1];
  const ticks = [], lowest = Math.max(Math.floor(Math.log10(low)), -323); // what is smaller is 0
  for (let power = lowest; power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of factors) {
      const tick = Number((factor * 10 ** power).toPrecision(3));
      if (tick >= low * 0.999 && tick <= high * 1.001) ticks.push(tick);
    }
  const every = Math.ceil(ticks.length / 6);
  return ticks.filter((_, number) => number % every === 0);
}

// A scale maps values to pixels; `padding` widens the range on both sides by that share.
function makeScale(values, from, to, { log = false, padding = 0.04 } = {}) {
  const warp = log ? Math.log10 : (value) => value;
  let low = Math.min(...values.map(warp)), high = Math.max(...values.map(warp));
  if (low === high) [low, high] = log ? [low - 0.3, high + 0.3] : [low - Math.max(Math.abs(low) * 0.1, 0.5), high + Math.max(Math.abs(high) * 0.1, 0.5)];
  const extra = (high - low) * padding;
  low -= extra; high += extra;
  const scale = (value) => from + Math.max(0, Math.min(1, (warp(value) - low) / (high - low))) * (to - from);
  const bound = (value) => (log ? 10 ** value : value);
  scale.ticks = (count) => (log ? logTicks(bound(low), bound(high)) : linearTicks(low, high, count));
  return scale;
}

function drawOnResize(holder, draw) {
  let width = 0;
  new ResizeObserver(() => {
    const now = Math.floor(holder.clientWidth);
    if (now > 0 && now !== width) draw((width = now));
  }).observe(holder);
}

function makeTip(holder) {
  const tip = element(holder, "div", "tip");
  tip.setAttribute("role", "status");
  tip.hidden = true;
  return {
    show(x, y, heading, lines) {
      tip.replaceChildren();
      if (heading) element(tip, "b", "", heading);
      for (const line of lines) element(tip, "div", "", line);
      tip.hidden = false;
      const left = x + 14 + tip.offsetWidth > holder.clientWidth ? x - tip.offsetWidth - 14 : x + 14;
      const top = Math.max(0, Math.min(y - tip.offsetHeight / 2, holder.clientHeight - tip.offsetHeight));
      tip.style.transform = `translate(${Math.max(0, left)}px, ${top}px)`;
    },
    hide() { tip.hidden = true; },
  };
}

// ---- numbers against numbers ----

function drawChart(figure) {
  const chart = JSON.parse(figure.querySelector("script").textContent);
  const holder = figure.querySelector(".plot");
  drawLegend(figure, chart);
  addNumbers(figure, chart);
  const svg = make(holder, "svg", { tabindex: 0, role: "img", "aria-label": describe(chart) });
  const tip = makeTip(holder);
  let points = [], chosen = null, marks = null, height = 0;

  function draw(width) {
    svg.replaceChildren();
    points = [];
    height = chart.small ? 190 : Math.max(210, Math.min(270, width * 0.62));
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    const all = chart.series.flatMap((series) => series.points);
    const ruled = (axis) => chart.rules.filter((rule) => rule.axis === axis).map((rule) => rule.at);
    const bands = chart.series.flatMap((series) => series.band.flat());
    const heights = chart.y_range ?? [...all.map((point) => point[1]), ...bands, ...ruled("y")];
    const y = makeScale(heights, height - 38, 24, { log: chart.y_log });
    const ticks = y.ticks(height / 55);
    const left = 10 + 6.6 * Math.max(...ticks.map((tick) => formatted(tick).length));
    const places = chart.x_names.length ? [-0.5, chart.x_names.length - 0.5] : [...all.map((point) => point[0]), ...ruled("x")];
    const x = makeScale(places, left, width - 10, { log: chart.x_log, padding: chart.x_names.length ? 0 : 0.02 });
    drawAxes(svg, chart, x, y, ticks, left, width, height);
    for (const rule of chart.rules) drawRule(svg, rule, x, y, left, width, height);
    chart.series.forEach((series, number) => drawSeries(svg, series, number, x, y, points));
    marks = make(svg, "g", { "aria-hidden": "true" });
    chosen = null;
    tip.hide();
  }

  function choose(point) {
    chosen = point;
    marks.replaceChildren();
    if (!point) return tip.hide();
    make(marks, "line", { class: "cursor", x1: point.x, x2: point.x, y1: 24, y2: height - 38 });
    const together = chart.series.length <= 3 && chart.series.every((series) => series.joined);
    const shown = together ? points.filter((other) => other.value[0] === point.value[0]) : [point];
    for (const each of shown) make(make(marks, "g", { class: `tone-${each.series.tone}` }), "circle", { class: "spot", cx: each.x, cy: each.y, r: 4.5 });
    const place = chart.x_names.length ? chart.x_names[Math.round(point.value[0])] : formatted(point.value[0]);
    const lines = shown.map((each) => `${each.label || each.series.name}: ${formatted(each.value[1])}${within(each)}`);
    tip.show(point.x, point.y, `${chart.x} ${place}`, lines);
  }

  function nearest(event) {
    const box = svg.getBoundingClientRect();
    const joined = chart.series.every((series) => series.joined);
    let best = null, distance = Infinity;
    for (const point of points) {
      const dx = point.x - (event.clientX - box.left), dy = point.y - (event.clientY - box.top);
      const away = dx * dx + dy * dy * (joined && chart.series.length <= 3 ? 0.05 : 1);
      if (away < distance) [best, distance] = [point, away];
    }
    return best;
  }

  function step(key) {
    if (!points.length) return null;
    const order = [...points].sort((a, b) => a.number - b.number || a.x - b.x);
    if (key === "End") return order.at(-1);
    if (!chosen || key === "Home") return order[0];
    if (key === "ArrowRight" || key === "ArrowLeft") {
      const place = order.indexOf(chosen) + (key === "ArrowRight" ? 1 : -1);
      return order[Math.max(0, Math.min(place, order.length - 1))];
    }
    const others = [...new Set(order.map((point) => point.number))];
    const place = others.indexOf(chosen.number) + (key === "ArrowDown" ? 1 : -1);
    const there = order.filter((point) => point.number === others[(place + others.length) % others.length]);
    return there.reduce((a, b) => (Math.abs(a.x - chosen.x) <= Math.abs(b.x - chosen.x) ? a : b));
  }

  svg.addEventListener("pointermove", (event) => choose(nearest(event)));
  svg.addEventListener("pointerdown", (event) => choose(nearest(event)));
  svg.addEventListener("pointerleave", () => choose(null));
  svg.addEventListener("blur", () => choose(null));
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return choose(null);
    if (!["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    choose(step(event.key));
  });
  drawOnResize(holder, draw);
}

// The band at a point of a line, in words; empty if there is none.
function within(point) {
  const ends = point.series.band[point.index];
  return ends ? ` (${formatted(ends[0])} to ${formatted(ends[1])})` : "";
}

function drawAxes(svg, chart, x, y, ticks, left, width, height) {
  const bottom = height - 38;
  for (const tick of ticks) {
    make(svg, "line", { class: "gridline", x1: left, x2: width - 10, y1: y(tick), y2: y(tick) });
    make(svg, "text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, formatted(tick));
  }
  make(svg, "line", { class: "axis", x1: left, x2: width - 10, y1: bottom, y2: bottom });
  const whole = chart.series.every((series) => series.points.every((point) => Number.isInteger(point[0])));
  const ticked = () => x.ticks(width / 85).filter((tick) => !whole || Number.isInteger(tick)); // no half epochs
  const places = chart.x_names.length ? chart.x_names.map((_, place) => place) : ticked();
  let free = -Infinity;
  for (const tick of places) {
    const label = chart.x_names.length ? chart.x_names[tick] : formatted(tick);
    if (x(tick) - 3.3 * label.length < free) continue; // would run into the one before
    free = x(tick) + 3.3 * label.length + 8;
    make(svg, "line", { class: "axis", x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 4 });
    make(svg, "text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, label);
  }
  make(svg, "text", { x: 0, y: 11 }, chart.y);
  make(svg, "text", { x: width - 10, y: height - 3, "text-anchor": "end" }, chart.x);
}

function drawRule(svg, rule, x, y, left, width, height) {
  if (rule.axis === "y") {
    make(svg, "line", { class: "rule", x1: left, x2: width - 10, y1: y(rule.at), y2: y(rule.at) });
    make(svg, "text", { x: width - 12, y: y(rule.at) - 5, "text-anchor": "end" }, rule.label);
    return;
  }
  const late = x(rule.at) > width * 0.6;
  make(svg, "line", { class: "rule", x1: x(rule.at), x2: x(rule.at), y1: 24, y2: height - 38 });
  make(svg, "text", { x: x(rule.at) + (late ? -5 : 5), y: height - 46, "text-anchor": late ? "end" : "start" }, rule.label);
}

function drawSeries(svg, series, number, x, y, points) {
  const group = make(svg, "g", { class: `series tone-${series.tone}` });
  const placed = series.points.map((value, index) => ({ value, x: x(value[0]), y: y(value[1]), series, number, index, label: series.labels[index] }));
  if (series.band.length > 1) {
    const edge = (end) => placed.map((point, index) => `${point.x.toFixed(1)} ${y(series.band[index][end]).toFixed(1)}`);
    make(group, "path", { class: "band", d: `M${[...edge(0), ...edge(1).reverse()].join("L")}Z` });
  }
  if (series.joined && placed.length > 1)
    make(group, "path", { class: "line", d: "M" + placed.map((point) => `${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("L") });
  else if (series.mark === "cross")
    for (const point of placed) make(group, "path", { class: "cross", d: `M${point.x - 3.5} ${point.y - 3.5}l7 7m0 -7l-7 7` });
  else for (const point of placed) make(group, "circle", { class: "point", cx: point.x, cy: point.y, r: series.joined ? 3.5 : 4 });
  points.push(...placed);
}

function drawLegend(figure, chart) {
  const shown = new Map();
  for (const series of chart.series)
    if (series.points.length) shown.set(series.tone, series.tone === "quiet" ? "other trials" : series.name);
  if (chart.small || shown.size < 2) return; // small charts share one
  const legend = document.createElement("ul");
  legend.className = "legend";
  for (const [tone, name] of shown) {
    const item = element(legend, "li", `tone-${tone}`);
    element(item, "i", chart.series[0].joined ? "" : "dot");
    element(item, "span", "", name);
    item.lastChild.style.color = "var(--soft)";
  }
  figure.querySelector(".plot").before(legend);
}

function describe(chart) {
  const parts = chart.series.filter((series) => series.points.length).slice(0, 4).map((series) => {
    const last = series.points.at(-1);
    return series.joined ? `${series.name} ends at ${formatted(last[1])}` : `${series.points.length} ${series.name}`;
  });
  return `${chart.title}: ${chart.y} by ${chart.x}. ${parts.join(", ")}. Arrow keys walk through the points.`;
}

function addNumbers(figure, chart) {
  const details = element(figure, "details");
  element(details, "summary", "", "Numbers");
  details.addEventListener("toggle", () => {
    if (!details.open || details.children.length > 1) return;
    const table = element(element(details, "div", "numbers"), "table");
    const head = element(element(table, "thead"), "tr");
    for (const name of ["", chart.x, chart.y]) element(head, "th", "", name);
    const body = element(table, "tbody");
    for (const series of chart.series)
      series.points.forEach((point, index) => {
        const row = element(body, "tr");
        element(row, "th", "", series.labels[index] || series.name);
        element(row, "td", "", chart.x_names.length ? chart.x_names[Math.round(point[0])] : formatted(point[0], 5));
        element(row, "td", "", formatted(point[1], 6));
      });
  });
}

// ---- the paper's number and ours, row by row ----

function drawPairs(figure) {
  const chart = JSON.parse(figure.querySelector("script").textContent);
  const holder = figure.querySelector(".plot");
  const svg = make(holder, "svg", { role: "img", "aria-label": `${chart.title}: the paper's numbers and ours; the table below has them all` });
  const tip = makeTip(holder);
  drawOnResize(holder, (width) => {
    svg.replaceChildren();
    const row = 27, top = 6, bottom = top + row * chart.pairs.length;
    svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 40}`);
    svg.setAttribute("height", bottom + 40);
    const left = 14 + 7 * Math.max(...chart.pairs.map((pair) => pair.label.length)), right = width - 70;
    const values = chart.pairs.flatMap((pair) => [pair.paper, ...(pair.ours === null ? [] : [pair.ours - (pair.spread || 0), pair.ours + (pair.spread || 0)])]);
    const x = chart.lower_is_better ? makeScale(values, right, left, { padding: 0.05 }) : makeScale(values, left, right, { padding: 0.05 });
    for (const tick of x.ticks((right - left) / 48)) {
      make(svg, "line", { class: "gridline", x1: x(tick), x2: x(tick), y1: top, y2: bottom });
      make(svg, "text", { x: x(tick), y: bottom + 15, "text-anchor": "middle" }, formatted(tick));
    }
    make(svg, "text", { x: right, y: bottom + 33, "text-anchor": "end" }, `${chart.x}; better \u2192`);
    chart.pairs.forEach((pair, index) => drawPair(svg, tip, pair, x, top + row * (index + 0.5), width, row));
  });
}

function drawPair(svg, tip, pair, x, y, width, row) {
  const group = make(svg, "g", { class: "pair" });
  make(group, "rect", { x: 0, y: y - row / 2, width, height: row, fill: "transparent" });
  make(group, "text", { class: "name", x: 0, y: y + 4 }, pair.label);
  const lines = [`paper ${formatted(pair.paper)}`];
  if (pair.ours !== null) {
    const kind = pair.verdict === "reaches" ? "ours-good" : "ours-bad", at = x(pair.ours);
    make(group, "line", { class: "joint", x1: x(pair.paper), x2: at, y1: y, y2: y });
    if (pair.spread) make(group, "line", { class: `spread ${kind}`, x1: x(pair.ours - pair.spread), x2: x(pair.ours + pair.spread), y1: y, y2: y });
    make(group, "circle", { class: "paper-dot", cx: x(pair.paper), cy: y, r: 4.5 });
    if (kind === "ours-good") make(group, "circle", { class: kind, cx: at, cy: y, r: 5 });
    else make(group, "path", { class: kind, d: `M${at} ${y - 6}l6 6l-6 6l-6 -6z` });
    make(group, "text", { class: `value ${kind}`, x: width, y: y + 4, "text-anchor": "end" }, pair.ours.toFixed(2).replace("-", "\u2212") + (kind === "ours-good" ? " \u2713" : "\u2002\u2009"));
    lines.push(`ours ${formatted(pair.ours)}` + (pair.spread ? ` \u00b1 ${formatted(pair.spread, 2)}` : ""));
  } else {
    make(group, "circle", { class: "paper-dot", cx: x(pair.paper), cy: y, r: 4.5 });
    make(group, "text", { x: width, y: y + 4, "text-anchor": "end" }, pair.verdict === "diverged" ? "diverged" : "no result");
  }
  group.addEventListener("pointerenter", () => tip.show(x(pair.ours ?? pair.paper), y, pair.label, lines));
  group.addEventListener("pointerleave", () => tip.hide());
}

document.querySelectorAll("figure.chart").forEach(drawChart);
document.querySelectorAll("figure.pairs").forEach(drawPairs);
