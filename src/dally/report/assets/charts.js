// Line, bar, stacked-bar and point plots as SVG. Colours are CSS variables, so a change of theme needs no redraw;
// every series also has its own dash and marker, so colour is never the only difference.
"use strict";
const Charts = (() => {
  const NS = "http://www.w3.org/2000/svg";
  const DASHES = ["", "7 3", "2 3", "9 3 2 3", "4 2", "12 4", "1 4", "6 2 2 2 2 2"];
  const COLOURS = 12;
  const hidden = new Set();
  const plots = [];
  const PAPER = 680; // CSS pixels between the margins of a printed page, less a card's padding
  let printing = false;

  function make(tag, attributes, parent, text) {
    const node = document.createElementNS(NS, tag);
    for (const key in attributes) node.setAttribute(key, attributes[key]);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.appendChild(node);
    return node;
  }
  const colour = (slot) => `var(--s${slot % COLOURS})`;
  const dash = (slot) => DASHES[(slot + Math.floor(slot / COLOURS)) % DASHES.length];

  function markerPath(slot, x, y, r) {
    const shapes = [
      () => `M${x - r},${y}a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0Z`,
      () => `M${x - r},${y - r}h${2 * r}v${2 * r}h${-2 * r}Z`,
      () => `M${x},${y - r * 1.2}L${x + r * 1.15},${y + r}H${x - r * 1.15}Z`,
      () => `M${x},${y - r * 1.35}L${x + r * 1.35},${y}L${x},${y + r * 1.35}L${x - r * 1.35},${y}Z`,
      () => `M${x},${y + r * 1.2}L${x + r * 1.15},${y - r}H${x - r * 1.15}Z`,
      () => { const a = r * 0.45, b = r * 1.2;
        return `M${x - a},${y - b}h${2 * a}v${b - a}h${b - a}v${2 * a}h${a - b}v${b - a}h${-2 * a}v${a - b}h${a - b}v${-2 * a}h${b - a}Z`; },
      () => `M${x - r * 1.3},${y - r * 0.6}h${2.6 * r}v${1.2 * r}h${-2.6 * r}Z`,
      () => `M${x - r * 0.6},${y - r * 1.3}h${1.2 * r}v${2.6 * r}h${-1.2 * r}Z`,
      () => `M${x - r},${y - r * 1.2}h${2 * r}L${x},${y}L${x + r},${y + r * 1.2}h${-2 * r}L${x},${y}Z`,
      () => `M${x - r * 1.2},${y - r}v${2 * r}L${x},${y}L${x + r * 1.2},${y + r}v${-2 * r}L${x},${y}Z`,
    ];
    return shapes[(slot + Math.floor(slot / shapes.length)) % shapes.length](); // shifted in each round, as colours and dashes are
  }
  const marker = (slot, x, y, r, parent) =>
    make("path", { d: markerPath(slot, x, y, r), style: `fill:${colour(slot)}`, class: "marker" }, parent);

  function swatch(slot) {
    const svg = make("svg", { width: 30, height: 12, viewBox: "0 0 30 12", "aria-hidden": "true", class: "swatch" });
    make("line", { x1: 1, x2: 29, y1: 6, y2: 6, style: `stroke:${colour(slot)}`, "stroke-width": 2.2, "stroke-dasharray": dash(slot) }, svg);
    marker(slot, 15, 6, 3.6, svg);
    return svg;
  }

  // ---- numbers for people -------------------------------------------------------------------------------------
  const trim = (value, digits = 3) => String(Number(value.toPrecision(digits)));
  function time(v) {
    if (v === null || v === undefined || Number.isNaN(v)) return "–";
    const m = Math.abs(v);
    if (m === 0) return "0 s";
    if (m < 1) return trim(v * 1e3) + " ms";
    if (m < 120) return trim(v) + " s";
    if (m < 7200) return trim(v / 60) + " min";
    if (m < 172800) return trim(v / 3600) + " h";
    return trim(v / 86400) + " d";
  }
  const formats = {
    time,
    share: (v) => (v === null ? "–" : trim(100 * v) + " %"),
    count: (v) => (v === null ? "–" : v >= 1000 ? Math.round(v).toLocaleString("en-US") : trim(v)),
    ratio: (v) => (v === null ? "–" : trim(v) + "×"),
  };
  const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000];
  const LOG_TIMES = [1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 36000, 86400, 864000, 8640000, 86400000];
  const FINE_TIMES = [[1, [1, 2, 5, 10, 20, 30]], [60, [1, 2, 5, 10, 20, 30]], [3600, [1, 2, 5, 10]], [86400, [1, 2, 5, 10, 20, 50, 100, 200, 500]]]
    .flatMap(([unit, steps]) => steps.map((step) => unit * step));
  const wholeTime = (v) => {
    const [unit, size] = v >= 86400 ? ["d", 86400] : v >= 3600 ? ["h", 3600] : v >= 60 ? ["min", 60] : v >= 1 ? ["s", 1] : ["ms", 1e-3];
    return `${trim(v / size)} ${unit}`;
  };

  function timeStep(rough) {
    const found = STEPS.find((step) => step >= rough);
    if (found) return found;
    return niceStep(rough / 86400) * 86400;
  }
  function niceStep(rough) {
    const power = 10 ** Math.floor(Math.log10(rough));
    return [1, 2, 2.5, 5, 10].find((f) => f * power >= rough * 0.999) * power;
  }
  function tickTime(v, step) {
    if (v === 0) return "0";
    if (v >= 86400 && step < 86400) {
      // Far from 0 the day comes first: 3 d 11:30, and not 5010 min.
      const two = (n) => String(Math.floor(n)).padStart(2, "0"), day = Math.floor(v / 86400 + 1e-9), rest = Math.max(0, v - day * 86400) + 1e-6;
      if (step >= 3600) return rest < 1 ? `${day} d` : `${day} d ${Math.floor(rest / 3600)} h`;
      return `${day} d ${two(rest / 3600)}:${two((rest % 3600) / 60)}` + (step < 60 ? `:${two(rest % 60)}` : "");
    }
    const [unit, size] = step >= 86400 ? ["d", 86400] : step >= 3600 ? ["h", 3600] : step >= 60 ? ["min", 60] : ["s", 1];
    return trim(v / size, 6) + " " + unit;
  }
  function ticks(axis, low, high, pixels) {
    const want = Math.max(2, Math.floor(pixels / (axis.fmt === "time" ? 84 : 56)));
    if (axis.kind === "log") {
      const tens = [], fine = [];
      for (let p = -6; p < 13; p++) { tens.push(10 ** p); fine.push(10 ** p, 2 * 10 ** p, 5 * 10 ** p); }
      const spaced = (candidates) => {
        const found = [];
        for (const v of candidates) {
          if (v < low * 0.999 || v > high * 1.001) continue;
          const last = found[found.length - 1];
          if (!found.length || (pixels * Math.log(v / last)) / Math.log(high / low) > (axis.gap || 50)) found.push(v);
        }
        return found;
      };
      let found = spaced(axis.fmt === "time" ? LOG_TIMES : tens);
      if (found.length < 4) found = spaced(axis.fmt === "time" ? FINE_TIMES : fine);
      if (found.length < 2) found = [low, high];
      return found.map((v) => [v, axis.fmt === "time" ? wholeTime(v) : formats[axis.fmt](v)]);
    }
    const rough = (high - low) / want || 1;
    const step = axis.fmt === "time" ? timeStep(rough) : axis.fmt === "count" ? Math.max(niceStep(rough), 1e-6) : niceStep(rough);
    const found = [];
    for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-6; v += step) {
      const clean = Math.abs(v) < step * 1e-6 ? 0 : v;
      found.push([clean, axis.fmt === "time" ? tickTime(clean, step) : formats[axis.fmt](clean)]);
    }
    return found;
  }
  function scale(kind, low, high, from, to) {
    if (kind === "log") {
      const a = Math.log(low), b = Math.log(high);
      const map = (v) => from + ((Math.log(Math.max(v, low)) - a) / (b - a || 1)) * (to - from);
      map.back = (p) => Math.exp(a + ((p - from) / (to - from)) * (b - a));
      return map;
    }
    const map = (v) => from + ((v - low) / (high - low || 1)) * (to - from);
    map.back = (p) => low + ((p - from) / (to - from)) * (high - low);
    return map;
  }

  // ---- tooltip ------------------------------------------------------------------------------------------------
  let tip;
  function showTip(x, y, head, rows) {
    if (!tip) { tip = document.createElement("div"); tip.className = "tip"; tip.setAttribute("role", "status"); document.body.appendChild(tip); }
    tip.replaceChildren();
    const title = document.createElement("strong");
    title.textContent = head;
    tip.appendChild(title);
    for (const [slot, name, value] of rows) {
      const line = document.createElement("div");
      if (slot !== null) line.appendChild(swatch(slot));
      const label = document.createElement("span");
      label.textContent = name;
      const figure = document.createElement("b");
      figure.textContent = value;
      line.append(label, figure);
      tip.appendChild(line);
    }
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 16 + box.width > innerWidth ? Math.max(4, x - 16 - box.width) : x + 16;
    tip.style.left = left + "px";
    tip.style.top = Math.max(4, Math.min(y + 12, innerHeight - box.height - 4)) + "px";
  }
  const hideTip = () => { if (tip) tip.hidden = true; };

  // ---- common frame -------------------------------------------------------------------------------------------
  function register(node, draw) {
    const plot = { node, draw, width: 0 };
    plots.push(plot);
    const redraw = () => {
      const width = Math.max(240, Math.round(node.clientWidth));
      plot.width = width;
      draw(width);
    };
    plot.redraw = redraw;
    redraw();
    plot.forPaper = () => draw(node.closest(".grid2") ? PAPER / 2 : PAPER);
    new ResizeObserver(() => { if (!printing && Math.abs(node.clientWidth - plot.width) > 1 && node.clientWidth) redraw(); }).observe(node);
    node.dataset.drawn = "yes";
    return plot;
  }
  function frame(node, width, height) {
    node.querySelector("svg.chart")?.remove();
    return make("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width: "100%", "aria-hidden": "true" }, node);
  }
  function axes(svg, spec, area, x, y, xr, yr) {
    const grid = make("g", { class: "grid" }, svg), labels = make("g", { class: "ticks" }, svg);
    for (const [v, text] of ticks(spec.y, yr[0], yr[1], area.bottom - area.top)) {
      const at = y(v);
      make("line", { x1: area.left, x2: area.right, y1: at, y2: at }, grid);
      make("text", { x: area.left - 8, y: at + 4, "text-anchor": "end" }, labels, text);
    }
    if (x) for (const [v, text] of ticks(spec.x, xr[0], xr[1], area.right - area.left)) {
      const at = x(v);
      make("line", { x1: at, x2: at, y1: area.bottom, y2: area.bottom + 5, class: "tickmark" }, grid);
      make("text", { x: Math.min(at, area.right - 8), y: area.bottom + 19, "text-anchor": "middle" }, labels, text);
    }
    make("line", { x1: area.left, x2: area.right, y1: area.bottom, y2: area.bottom, class: "axis" }, svg);
    if (spec.x.label) make("text", { x: (area.left + area.right) / 2, y: area.bottom + 38, "text-anchor": "middle", class: "label" }, svg, spec.x.label);
    if (spec.y.label) make("text", { x: area.left - 46, y: area.top - 12, class: "label" }, svg, spec.y.label);
  }
  // Series that are no runs (`own`) are not hidden with them.
  const visible = (spec) => (spec.own ? spec.series : spec.series.filter((s) => !hidden.has(s.slot)));

  // ---- lines --------------------------------------------------------------------------------------------------
  function lines(node, spec) {
    let zoom = null, kind = spec.x.kind || "linear", focus = null;
    const tools = node.parentElement.querySelector(".tools");
    const button = (text, action) => {
      const b = document.createElement("button");
      b.type = "button"; b.textContent = text; b.addEventListener("click", action);
      tools?.appendChild(b);
      return b;
    };
    let logButton;
    if (spec.x.kind === "log") {
      logButton = button("Linear axis", () => {
        kind = kind === "log" ? "linear" : "log"; zoom = null;
        logButton.textContent = kind === "log" ? "Linear axis" : "Logarithmic axis";
        plot.redraw();
      });
    }
    const reset = button("Reset zoom", () => { zoom = null; plot.redraw(); });
    reset.hidden = true;

    function range() {
      const shown = visible(spec).length ? visible(spec) : spec.series;
      let low = Infinity, high = -Infinity;
      for (const s of shown) if (s.x.length) { low = Math.min(low, s.x[0]); high = Math.max(high, s.x[s.x.length - 1], spec.x.to || 0); }
      if (!Number.isFinite(low)) { low = 0; high = 1; }
      if (kind === "log") {
        low = Math.max(low, spec.x.least || 1);
        high = Math.max(high, low * 10);
      } else if (spec.x.fromZero !== false) low = Math.min(low, 0);
      return [low, high > low ? high : low + 1];
    }
    function draw(width) {
      const height = spec.height || Math.max(250, Math.min(360, width * 0.5));
      const svg = frame(node, width, height);
      const area = { left: 56, right: width - 14, top: 28, bottom: height - 46 };
      const xr = zoom || range();
      let yr = spec.y.range;
      if (!yr) {
        let top = 0;
        for (const s of visible(spec)) for (let i = 0; i < s.x.length; i++) if (s.x[i] >= xr[0] && s.x[i] <= xr[1]) top = Math.max(top, s.y[i] || 0);
        yr = [0, top * 1.06 || 1];
      }
      const axis = { ...spec, x: { ...spec.x, kind } };
      const x = scale(kind, xr[0], xr[1], area.left, area.right);
      const y = scale(spec.y.kind || "linear", yr[0], yr[1], area.bottom, area.top);
      axes(svg, axis, area, x, y, xr, yr);
      const clip = `clip${plots.length}-${Math.random().toString(36).slice(2)}`;
      make("rect", { x: area.left, y: area.top - 4, width: area.right - area.left, height: area.bottom - area.top + 6 },
        make("clipPath", { id: clip }, make("defs", {}, svg)));
      for (const ref of spec.refs || []) {
        const at = y(ref.y);
        make("line", { x1: area.left, x2: area.right, y1: at, y2: at, class: "reference" }, svg);
        make("text", { x: area.left + 6, y: at - 6, "text-anchor": "start", class: "note" }, svg, ref.label);
      }
      const body = make("g", { "clip-path": `url(#${clip})` }, svg);
      visible(spec).forEach((s) => {
        let path = "", last = null;
        const px = [], py = [];
        for (let i = 0; i < s.x.length; i++) {
          const a = x(s.x[i]), b = y(s.y[i]);
          if (last === null) path += `M${a.toFixed(1)},${(spec.step ? y(spec.first ?? s.y[i]) : b).toFixed(1)}` + (spec.step ? `V${b.toFixed(1)}` : "");
          else path += spec.step ? `H${a.toFixed(1)}V${b.toFixed(1)}` : `L${a.toFixed(1)},${b.toFixed(1)}`;
          last = b; px.push(a); py.push(b);
        }
        if (spec.step && last !== null) path += `H${area.right}`;
        make("path", { d: path, class: "line", "data-series": s.name, style: `stroke:${colour(s.slot)}`, "stroke-dasharray": dash(s.slot) }, body);
        // Markers at even distances, shifted per series so that they do not pile up.
        let next = area.left + 18 + (s.slot * 70) / Math.max(1, spec.series.length);
        for (let i = 0; i < px.length; i++) if (px[i] >= next && px[i] <= area.right) { marker(s.slot, px[i], py[i], 3.8, body); next = px[i] + 76; }
      });
      const cross = make("line", { y1: area.top, y2: area.bottom, class: "cross", visibility: "hidden" }, svg);
      const band = make("rect", { y: area.top, height: area.bottom - area.top, class: "band", visibility: "hidden" }, svg);
      const catcher = make("rect", { x: area.left, y: area.top, width: area.right - area.left, height: area.bottom - area.top, class: "catcher" }, svg);
      const toX = (event) => {
        const box = svg.getBoundingClientRect();
        return Math.min(area.right, Math.max(area.left, ((event.clientX - box.left) * width) / box.width));
      };
      function valueAt(s, v) {
        let a = 0, b = s.x.length;
        while (a < b) { const m = (a + b) >> 1; if (s.x[m] <= v) a = m + 1; else b = m; }
        if (spec.nearest) return s.y[Math.min(Math.max(a - (a < s.x.length && s.x[a] - v < v - s.x[a - 1] ? 0 : 1), 0), s.y.length - 1)];
        return a === 0 ? spec.first ?? s.y[0] : s.y[a - 1];
      }
      function point(at, px, py) {
        cross.setAttribute("x1", at); cross.setAttribute("x2", at); cross.setAttribute("visibility", "visible");
        const v = x.back(at);
        focus = v;
        showTip(px, py, (spec.x.tip || "") + formats[spec.x.fmt](v), visible(spec).filter((s) => s.x.length).map((s) => [s.slot, s.name, formats[spec.y.fmt](valueAt(s, v))]));
      }
      let from = null;
      catcher.addEventListener("pointerdown", (e) => { if (e.pointerType !== "touch") { from = toX(e); catcher.setPointerCapture(e.pointerId); } });
      catcher.addEventListener("pointermove", (e) => {
        const at = toX(e);
        if (from !== null) {
          band.setAttribute("visibility", "visible"); band.setAttribute("x", Math.min(from, at)); band.setAttribute("width", Math.abs(at - from));
        }
        point(at, e.clientX, e.clientY);
      });
      catcher.addEventListener("pointerup", (e) => {
        const at = toX(e);
        if (from !== null && Math.abs(at - from) > 8) { zoom = [x.back(Math.min(from, at)), x.back(Math.max(from, at))]; hideTip(); plot.redraw(); }
        from = null; band.setAttribute("visibility", "hidden");
      });
      catcher.addEventListener("pointerleave", () => { cross.setAttribute("visibility", "hidden"); if (from === null) hideTip(); });
      catcher.addEventListener("dblclick", () => { zoom = null; plot.redraw(); });
      node.onkeydown = (e) => {
        const box = svg.getBoundingClientRect(), unit = box.width / width;
        let at = focus === null ? (area.left + area.right) / 2 : Math.min(area.right, Math.max(area.left, x(focus)));
        const half = (area.right - area.left) / 4;
        if (e.key === "ArrowLeft") at = Math.max(area.left, at - 12);
        else if (e.key === "ArrowRight") at = Math.min(area.right, at + 12);
        else if (e.key === "+" || e.key === "=") { zoom = [x.back(Math.max(area.left, at - half)), x.back(Math.min(area.right, at + half))]; plot.redraw(); e.preventDefault(); return; }
        else if (e.key === "-" || e.key === "0" || e.key === "Escape") { zoom = null; hideTip(); plot.redraw(); e.preventDefault(); return; }
        else return;
        e.preventDefault();
        point(at, box.left + at * unit, box.top + area.top * unit + 20);
      };
      node.onblur = hideTip;
      reset.hidden = !zoom;
    }
    const plot = register(node, draw);
    return plot;
  }

  // ---- horizontal bars ----------------------------------------------------------------------------------------
  function rowsFrame(node, count, width, extra) {
    const wide = width >= 520;
    const left = wide ? Math.min(230, width * 0.34) : 0;
    const pitch = wide ? 34 : 46;
    const height = count * pitch + extra;
    return { wide, left, pitch, svg: frame(node, width, height), height, room: width - 20 };
  }
  function rowLabel(svg, f, index, top, name, slot) {
    const base = top + index * f.pitch;
    const g = make("g", { class: "rowname" }, svg);
    if (slot !== null) marker(slot, 6, f.wide ? base + f.pitch / 2 : base + 8, 4.4, g);
    const label = make("text", { x: slot === null ? 0 : 17, y: f.wide ? base + f.pitch / 2 + 4 : base + 12 }, g, name);
    const room = f.wide ? f.left - 26 : f.room;
    if (label.getComputedTextLength() > room) {
      // Names of one policy with other options differ at the end, so the middle goes.
      for (let keep = name.length - 1; keep > 5 && label.getComputedTextLength() > room; keep--) {
        label.textContent = name.slice(0, Math.floor(keep * 0.45)) + "…" + name.slice(name.length - Math.ceil(keep * 0.55));
      }
      make("title", {}, label, name);
    }
    return f.wide ? { y: base + 6, h: f.pitch - 13 } : { y: base + 18, h: 20 };
  }
  function bars(node, spec) {
    return register(node, (width) => {
      const rows = spec.rows.filter((r) => !hidden.has(r.slot));
      const top = spec.ref ? 24 : 4;
      const f = rowsFrame(node, rows.length, width, top + 6);
      const known = [...rows.map((r) => r.value || 0), spec.ref ? spec.ref.value : 0].filter((v) => v > 0);
      const most = Math.max(...known, 0) || 1;
      // Over several powers of ten only a logarithm shows the short ones; it begins below the shortest.
      const x = scale(spec.log ? "log" : "linear", spec.log ? Math.min(...known) / 2 : 0, most, f.left, f.wide ? width - 150 : width - 2);
      rows.forEach((r, i) => {
        f.room = width - 40 - 6.6 * (r.text + (r.note || "")).length; // the figure stands on the same line
        const box = rowLabel(f.svg, f, i, top, r.name, r.slot);
        const end = x(r.value || 0);
        make("rect", { x: f.left, y: box.y, width: Math.max(end - f.left, r.value ? 1.5 : 0), height: box.h, rx: 2.5, style: `fill:${colour(r.slot)}`, class: "bar", "data-series": r.name }, f.svg);
        const place = f.wide ? { x: end + 8, y: box.y + box.h / 2 + 4.5 } : { x: width - 2, y: box.y - 6, "text-anchor": "end" };
        const text = make("text", { ...place, class: "value" }, f.svg);
        make("tspan", { class: "strong" }, text, r.text);
        if (r.note) make("tspan", { dx: 6, class: "soft" }, text, r.note);
      });
      if (spec.ref) {
        const at = x(spec.ref.value);
        if (f.wide) make("line", { x1: at, x2: at, y1: top - 4, y2: f.height, class: "reference" }, f.svg);
        else rows.forEach((_, i) => make("line", { x1: at, x2: at, y1: top + i * f.pitch + 16, y2: top + i * f.pitch + 40, class: "reference" }, f.svg));
        const right = at > width * 0.6;
        make("text", { x: at + (right ? -4 : 4), y: 13, "text-anchor": right ? "end" : "start", class: "note" }, f.svg, spec.ref.label);
      }
    });
  }

  // ---- stacked shares -----------------------------------------------------------------------------------------
  const light = (hex) => {
    const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16) / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const inkOn = (hex) => (light(hex) > 0.19 ? "#10141a" : "#ffffff");
  function keys(node, parts) {
    const list = document.createElement("ul");
    list.className = "keys";
    for (const part of parts) {
      const item = document.createElement("li"), box = document.createElement("i");
      box.style.background = part.colour;
      item.append(box, part.name);
      list.appendChild(item);
    }
    node.parentElement.insertBefore(list, node);
  }
  function ownLegend(node, series) {
    const list = document.createElement("ul");
    list.className = "keys";
    for (const s of series) {
      const item = document.createElement("li");
      item.append(swatch(s.slot), " ", s.name);
      list.appendChild(item);
    }
    node.parentElement.insertBefore(list, node);
  }
  function stacked(node, spec) {
    keys(node, spec.parts);
    return register(node, (width) => {
      const rows = spec.rows.filter((r) => !hidden.has(r.slot));
      const f = rowsFrame(node, rows.length, width, 8);
      const x = scale("linear", 0, 1, f.left, width - 2);
      rows.forEach((r, i) => {
        const box = rowLabel(f.svg, f, i, 2, r.name, r.slot);
        let from = 0;
        r.shares.forEach((share, k) => {
          if (!share) return;
          const a = x(from), b = x(Math.min(1, from + share)), text = Math.round(100 * share) + " %";
          const bar = make("rect", { x: a, y: box.y, width: Math.max(b - a - 1, 0.5), height: box.h, fill: spec.parts[k].colour, class: "part", "data-series": r.name }, f.svg);
          make("title", {}, bar, `${r.name}: ${spec.parts[k].name} ${formats.share(share)}`);
          if (b - a > 38) make("text", { x: (a + b) / 2, y: box.y + box.h / 2 + 4.5, "text-anchor": "middle", style: `fill:${inkOn(spec.parts[k].colour)}`, class: "inside" }, f.svg, text);
          from += share;
        });
      });
    });
  }

  // ---- points per category ------------------------------------------------------------------------------------
  function points(node, spec) {
    return register(node, (width) => {
      const height = Math.max(260, Math.min(360, width * 0.5));
      const svg = frame(node, width, height);
      const area = { left: 60, right: width - 14, top: 28, bottom: height - 58 };
      const shown = visible(spec);
      const all = shown.flatMap((s) => s.y).filter((v) => v !== null && v > 0);
      const log = all.length && Math.max(...all) / Math.min(...all) > 8;
      const low = log ? Math.max(Math.min(...all) * 0.7, spec.least || 0) : 0, high = (all.length ? Math.max(...all) : 1) * (log ? 1.3 : 1.08);
      const y = scale(log ? "log" : "linear", low, high, area.bottom, area.top);
      const axis = { x: { label: spec.xLabel }, y: { fmt: spec.fmt, kind: log ? "log" : "linear", label: spec.label + (log ? " (log)" : ""), gap: 26 } };
      axes(svg, { ...axis, x: {} }, area, null, y, null, [low, high]);
      make("text", { x: (area.left + area.right) / 2, y: height - 6, "text-anchor": "middle", class: "label" }, svg, spec.xLabel);
      const slot = (area.right - area.left) / spec.names.length;
      const at = (k, j) => area.left + slot * (k + 0.5) + (shown.length > 1 ? ((j / (shown.length - 1)) - 0.5) * slot * 0.62 : 0);
      spec.names.forEach((name, k) => {
        const middle = area.left + slot * (k + 0.5);
        if (k % 2) make("rect", { x: area.left + slot * k, y: area.top, width: slot, height: area.bottom - area.top, class: "stripe" }, svg);
        make("text", { x: middle, y: area.bottom + 17, "text-anchor": "middle", class: "tick" }, svg, name);
        if (slot > 44) make("text", { x: middle, y: area.bottom + 31, "text-anchor": "middle", class: "soft" }, svg, spec.counts[k].toLocaleString("en-US"));
      });
      shown.forEach((s, j) => {
        s.y.forEach((v, k) => {
          if (v === null) return;
          const py = y(Math.max(v, log ? low : 0));
          make("line", { x1: at(k, j), x2: at(k, j), y1: area.bottom, y2: py, class: "stem", style: `stroke:${colour(s.slot)}` }, svg);
          marker(s.slot, at(k, j), py, 5, svg).setAttribute("data-series", s.name);
        });
      });
      spec.names.forEach((name, k) => {
        const zone = make("rect", { x: area.left + slot * k, y: area.top, width: slot, height: area.bottom - area.top, class: "catcher" }, svg);
        zone.addEventListener("pointermove", (e) => showTip(e.clientX, e.clientY, spec.tip(k), shown.map((s) => [s.slot, s.name, formats[spec.fmt](s.y[k])])));
        zone.addEventListener("pointerleave", hideTip);
      });
    });
  }

  function toggle(slot) {
    if (hidden.has(slot)) hidden.delete(slot); else hidden.add(slot);
    for (const plot of plots) plot.redraw();
    return !hidden.has(slot);
  }
  // A page is laid out for paper without telling the plots, so they are drawn for its width beforehand.
  function paper(on) {
    printing = on;
    for (const plot of plots) if (on) plot.forPaper(); else plot.redraw();
  }
  return { PAPER, paper, lines, bars, stacked, points, swatch, toggle, formats, ticks, showTip, hideTip, keys, ownLegend, inkOn };
})();
