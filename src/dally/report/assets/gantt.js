// The Gantt picture on a canvas: bars for single stretches of running, or a heat map of busy GPUs. Both zoom in time.
"use strict";
const Gantt = (() => {
  const LEVEL_COLOURS = ["#009e73", "#56b4e9", "#e69f00", "#d55e00", "#cc79a7", "#0072b2"];
  const HEAT = [31, 119, 180];

  function decode(text) {
    const raw = atob(text), bytes = new Uint8Array(raw.length);
    for (let i = 0; i < raw.length; i++) bytes[i] = raw.charCodeAt(i);
    return bytes;
  }

  function mount(node, data, runs, colourOfLevel) {
    const canvas = document.createElement("canvas");
    canvas.setAttribute("aria-hidden", "true");
    node.appendChild(canvas);
    const context = canvas.getContext("2d");
    const tools = node.parentElement.querySelector(".tools");
    const state = { run: data.best, detail: data.mode === "bars", zoom: [0, data.span], drag: null };
    const images = new Map();

    const select = document.createElement("select");
    select.setAttribute("aria-label", "Policy shown");
    runs.forEach((run, i) => select.add(new Option(run.name, i, false, i === state.run)));
    select.addEventListener("change", () => { state.run = Number(select.value); key(); draw(); });
    const button = (text, action) => {
      const b = document.createElement("button");
      b.type = "button"; b.textContent = text; b.addEventListener("click", action);
      return b;
    };
    const whole = () => (state.detail && data.mode === "heat" ? data.window : [0, data.span]);
    const sample = button("Zoom to sample", () => {
      state.detail = !state.detail;
      sample.textContent = state.detail ? "Back to heat map" : "Zoom to sample";
      state.zoom = whole();
      key();
      draw();
    });
    const zoomBy = (factor) => {
      const [a, b] = state.zoom, [low, high] = whole(), middle = (a + b) / 2, half = ((b - a) / 2) * factor;
      state.zoom = [Math.max(low, middle - half), Math.min(high, middle + half)];
      draw();
    };
    const move = (part) => {
      const [a, b] = state.zoom, [low, high] = whole(), by = Math.max(low - a, Math.min(high - b, (b - a) * part));
      state.zoom = [a + by, b + by];
      draw();
    };
    tools.append(select, ...(data.mode === "heat" ? [sample] : []), button("Zoom in", () => zoomBy(0.5)), button("Zoom out", () => zoomBy(2)),
      button("Reset zoom", () => { state.zoom = whole(); draw(); }));

    let legend;
    function key() {
      legend?.remove();
      legend = document.createElement("div");
      legend.className = "gantt-key";
      const shown = document.createElement("strong");
      shown.textContent = runs[state.run].name;
      legend.appendChild(shown);
      if (state.detail) {
        const list = document.createElement("ul");
        list.className = "keys";
        data.levels.forEach((name, k) => {
          const item = document.createElement("li"), box = document.createElement("i");
          box.style.background = colourOfLevel(k);
          item.append(box, `gang within one ${name}`);
          list.appendChild(item);
        });
        const bars = data.mode === "heat" ? data.runs[state.run].detail.bars : data.runs[state.run].bars;
        const shared = [["turns", "sliced", "in turns"], ["packed", "packed", "packed: at once"]];
        for (const [field, style, text] of shared) {
          if (!bars[field] || !bars[field].some((n) => n > 1)) continue;
          const item = document.createElement("li"), box = document.createElement("i");
          box.style.background = style === "sliced" ? `linear-gradient(${colourOfLevel(0)} 42%, transparent 42% 58%, ${colourOfLevel(0)} 58%)` : colourOfLevel(0);
          if (style === "packed") { box.style.opacity = "0.6"; box.style.outline = "1px solid currentColor"; }
          item.append(box, text);
          list.appendChild(item);
        }
        legend.appendChild(list);
      } else {
        const ramp = document.createElement("span");
        ramp.className = "ramp";
        ramp.style.background = `linear-gradient(90deg, rgba(${HEAT},0.04), rgba(${HEAT},1))`;
        legend.append("idle", ramp, "all GPUs busy");
      }
      node.parentElement.insertBefore(legend, node);
    }

    function heatImage(index) {
      if (images.has(index)) return images.get(index);
      const run = data.runs[index], shares = decode(run.heat), rows = run.rows.names.length;
      const off = document.createElement("canvas");
      off.width = data.bins; off.height = rows;
      const c = off.getContext("2d"), image = c.createImageData(data.bins, rows);
      for (let i = 0; i < shares.length; i++) {
        // One hue over the page's own background: reads the same in light, in dark and on paper.
        image.data.set([HEAT[0], HEAT[1], HEAT[2], shares[i] ? 10 + Math.round((shares[i] * 245) / 255) : 0], 4 * i);
      }
      c.putImageData(image, 0, 0);
      images.set(index, { off, shares });
      return images.get(index);
    }

    // Where a bar lies among the GPUs of its row: [first, height], in GPUs. Turns are stacked, packed jobs overlap.
    function place(bars, i) {
      let first = bars.first[i], height = bars.count[i];
      if (bars.turns && bars.turns[i] > 1) { height /= bars.turns[i]; first += bars.turn[i] * height; }
      if (bars.packed && bars.packed[i] > 1) {
        const inset = (0.4 * height) / bars.packed[i];
        first += bars.place[i] * inset;
        height -= (bars.packed[i] - 1) * inset;
      }
      return [first, height];
    }

    let layout = null;
    function draw(paper) {
      const run = data.runs[state.run];
      const rows = state.detail && data.mode === "heat" ? run.detail.rows : run.rows;
      const count = rows.names.length;
      const width = paper || Math.max(240, node.clientWidth);
      const narrow = width < 520;
      const style = getComputedStyle(node);
      const ink = style.getPropertyValue("--ink"), soft = style.getPropertyValue("--soft"), rule = style.getPropertyValue("--rule");
      const grouped = rows.groups.some((g) => g !== "");
      const detailed = data.mode === "heat" ? run.detail?.bars : run.bars;
      const thick = detailed?.turns ? Math.max(22, 12 * Math.max(...rows.gpus)) : 22; // thin bars need room to be told apart
      const rowHeight = Math.max(2, Math.min(state.detail ? Math.min(thick, 96) : 16, Math.floor((state.detail ? 620 : 460) / count)));
      const gaps = grouped ? rows.groups.filter((g, i) => i && g !== rows.groups[i - 1]).length : 0;
      const gap = Math.min(6, 160 / (gaps || 1));
      const left = narrow ? 58 : grouped ? 118 : 76, top = 8, bottom = 26;
      const height = Math.round(top + count * rowHeight + gaps * gap + bottom);
      const ratio = Math.min(3, devicePixelRatio || 1) < 1.5 ? 2 : Math.min(3, devicePixelRatio); // crisp on paper too
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
      canvas.style.width = "100%"; canvas.style.height = "auto"; canvas.style.aspectRatio = `${width} / ${height}`;
      context.setTransform(ratio, 0, 0, ratio, 0, 0);
      context.clearRect(0, 0, width, height);
      const [a, b] = state.zoom, right = width - 8;
      const x = (t) => left + ((t - a) / (b - a)) * (right - left);
      const tops = [];
      let at = top;
      for (let i = 0; i < count; i++) {
        if (i && rows.groups[i] !== rows.groups[i - 1]) at += gap;
        tops.push(at);
        at += rowHeight;
      }
      context.font = "11px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.fillStyle = soft;
      for (let i = 0; i < count; i++) {
        if (grouped && (!i || rows.groups[i] !== rows.groups[i - 1])) {
          let n = i;
          while (n + 1 < count && rows.groups[n + 1] === rows.groups[i]) n++;
          if (tops[n] + rowHeight - tops[i] >= 10) {
            context.fillStyle = ink;
            context.textAlign = "left";
            const room = narrow ? 52 : 64, whole = rows.groups[i];
            const name = context.measureText(whole).width > room ? whole.slice(whole.lastIndexOf("/") + 1) : whole;
            context.fillText(name, 0, (tops[i] + tops[n] + rowHeight) / 2, room);
          }
          context.fillStyle = soft;
        }
        if (rowHeight >= 11 && !(narrow && grouped)) {
          context.textAlign = "right";
          context.fillText(rows.names[i], left - 6, tops[i] + rowHeight / 2, 50);
        }
      }
      context.strokeStyle = rule;
      context.lineWidth = 1;
      for (let i = 0; i < count; i++) context.strokeRect(left + 0.5, tops[i] + 0.5, right - left - 1, rowHeight - 1);
      context.save();
      context.beginPath();
      context.rect(left, top, right - left, at - top);
      context.clip();
      if (state.detail) {
        const bars = data.mode === "heat" ? run.detail.bars : run.bars;
        for (let i = 0; i < bars.row.length; i++) {
          if (bars.end[i] < a || bars.start[i] > b) continue;
          const row = bars.row[i], lane = (rowHeight - 1) / rows.gpus[row];
          const x0 = x(bars.start[i]), x1 = x(bars.end[i]);
          context.fillStyle = colourOfLevel(bars.level[i]);
          const [first, height] = place(bars, i), packed = bars.packed && bars.packed[i] > 1;
          const box = [x0, tops[row] + 0.5 + first * lane, Math.max(x1 - x0 - (x1 - x0 > 3 ? 0.8 : 0), 0.6), Math.max(height * lane - (lane * height > 3 ? 0.5 : 0), 0.6)];
          if (packed) context.globalAlpha = 0.6;
          context.fillRect(...box);
          context.globalAlpha = 1;
          if (packed && box[2] > 3 && box[3] > 3) { context.strokeStyle = ink; context.lineWidth = 0.6; context.strokeRect(box[0] + 0.3, box[1] + 0.3, box[2] - 0.6, box[3] - 0.6); }
        }
      } else {
        const { off } = heatImage(state.run);
        context.imageSmoothingEnabled = false;
        for (let i = 0; i < count; i++) context.drawImage(off, (a / data.span) * data.bins, i, ((b - a) / data.span) * data.bins, 1, left, tops[i], right - left, Math.max(rowHeight - (rowHeight > 5 ? 1 : 0), 1));
      }
      if (state.drag) {
        context.fillStyle = "rgba(127,127,127,0.3)";
        context.fillRect(Math.min(...state.drag), top, Math.abs(state.drag[1] - state.drag[0]), at - top);
      }
      context.restore();
      context.fillStyle = soft;
      context.strokeStyle = soft;
      context.textAlign = "center";
      for (const [v, text] of Charts.ticks({ fmt: "time" }, a, b, right - left)) {
        context.fillRect(x(v), at + 1, 1, 4);
        context.fillText(text, Math.min(Math.max(x(v), left + 8), right - 14), at + 14);
      }
      layout = { rows, tops, rowHeight, left, right, width, x, a, b };
      node.dataset.drawn = "yes";
      node.dataset.mode = state.detail ? "bars" : "heat";
    }

    function locate(event) {
      const box = canvas.getBoundingClientRect(), unit = layout.width / box.width;
      const px = (event.clientX - box.left) * unit, py = (event.clientY - box.top) * unit;
      const t = layout.a + ((px - layout.left) / (layout.right - layout.left)) * (layout.b - layout.a);
      const row = layout.tops.findIndex((top) => py >= top && py < top + layout.rowHeight);
      return { px: Math.min(layout.right, Math.max(layout.left, px)), py, t, row };
    }
    const rowName = (row) => (layout.rows.groups[row] ? layout.rows.groups[row] + "/" : "") + layout.rows.names[row];
    canvas.addEventListener("pointerdown", (e) => { if (e.pointerType !== "touch") { const p = locate(e).px; state.drag = [p, p]; canvas.setPointerCapture(e.pointerId); } });
    canvas.addEventListener("pointermove", (e) => {
      const { px, py, t, row } = locate(e);
      if (state.drag) { state.drag[1] = px; requestAnimationFrame(() => draw()); }
      if (row < 0 || t < layout.a || t > layout.b) return Charts.hideTip();
      const run = data.runs[state.run], F = Charts.formats;
      if (!state.detail) {
        const bin = Math.min(data.bins - 1, Math.max(0, Math.floor((t / data.span) * data.bins)));
        const share = heatImage(state.run).shares[row * data.bins + bin] / 255, gpus = layout.rows.gpus[row];
        return Charts.showTip(e.clientX, e.clientY, rowName(row), [[null, "time", F.time(t)], [null, "busy GPUs", `${(share * gpus).toFixed(1)} of ${gpus}`]]);
      }
      const bars = data.mode === "heat" ? run.detail.bars : run.bars;
      const lane = ((py - layout.tops[row]) / layout.rowHeight) * layout.rows.gpus[row];
      for (let i = 0; i < bars.row.length; i++) {
        if (bars.row[i] !== row || bars.start[i] > t || bars.end[i] < t) continue;
        const [first, height] = place(bars, i);
        if (lane >= first && lane < first + height) {
          const [id, gpus] = bars.jobs[bars.job[i]];
          const shared = [];
          if (bars.turns && bars.turns[i] > 1) shared.push([null, "takes turns", `${bars.turn[i] + 1} of ${bars.turns[i]}`]);
          if (bars.packed && bars.packed[i] > 1) shared.push([null, "packed with", `${bars.packed[i] - 1} more`]);
          return Charts.showTip(e.clientX, e.clientY, `job ${id}`, [[null, "GPUs", String(gpus)], [null, "here", `${bars.count[i]} on ${rowName(row)}`],
            [null, "from", F.time(bars.start[i])], [null, "for", F.time(bars.end[i] - bars.start[i])], [null, "placed within one", data.levels[bars.level[i]]], ...shared]);
        }
      }
      return Charts.showTip(e.clientX, e.clientY, rowName(row), [[null, "at " + F.time(t), "idle"]]);
    });
    canvas.addEventListener("pointerup", () => {
      const drag = state.drag;
      state.drag = null;
      if (drag && Math.abs(drag[1] - drag[0]) > 8) {
        const back = (p) => layout.a + ((p - layout.left) / (layout.right - layout.left)) * (layout.b - layout.a);
        state.zoom = [back(Math.min(...drag)), back(Math.max(...drag))];
      }
      draw();
    });
    canvas.addEventListener("pointerleave", Charts.hideTip);
    canvas.addEventListener("dblclick", () => { state.zoom = whole(); draw(); });
    node.addEventListener("keydown", (e) => {
      const actions = { "+": () => zoomBy(0.5), "=": () => zoomBy(0.5), "-": () => zoomBy(2), ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), 0: () => { state.zoom = whole(); draw(); } };
      if (e.target === node && actions[e.key]) { actions[e.key](); e.preventDefault(); }
    });
    key();
    draw();
    let seen = node.clientWidth;
    new ResizeObserver(() => { if (Math.abs(node.clientWidth - seen) > 1 && node.clientWidth) { seen = node.clientWidth; draw(); } }).observe(node);
    return { draw };
  }
  return { mount, LEVEL_COLOURS };
})();
