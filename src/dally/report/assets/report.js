// Fills the report's plots from the figures embedded in the page, and looks after theme and legends.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("figures").textContent);
  const at = (name) => document.querySelector(`[data-plot="${name}"]`);
  const T = Charts.formats;
  const series = (list, x) => list.map((s, slot) => ({ name: data.runs[slot].name, slot, x: x || s.x, y: s.y }));
  const levelColour = (k) => Gantt.LEVEL_COLOURS[(k + (data.machineLevel ? 0 : 1)) % Gantt.LEVEL_COLOURS.length];

  // Theme: the system's, until the reader chooses.
  const root = document.documentElement, button = document.getElementById("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let gantt;
  const current = () => root.dataset.theme || (dark.matches ? "dark" : "light");
  const label = () => { button.textContent = current() === "dark" ? "Light theme" : "Dark theme"; };
  button.addEventListener("click", () => { root.dataset.theme = current() === "dark" ? "light" : "dark"; label(); gantt?.draw(); });
  dark.addEventListener("change", () => { label(); gantt?.draw(); });
  let chosen;
  addEventListener("beforeprint", () => { chosen = root.dataset.theme; root.dataset.theme = "light"; Charts.paper(true); gantt?.draw(Charts.PAPER); });
  addEventListener("afterprint", () => { if (chosen) root.dataset.theme = chosen; else delete root.dataset.theme; Charts.paper(false); gantt?.draw(); });
  label();

  for (const legend of document.querySelectorAll(".legend")) {
    data.runs.forEach((run, slot) => {
      if (run.name === legend.dataset.without) return;
      const b = document.createElement("button");
      b.type = "button";
      b.setAttribute("aria-pressed", "true");
      b.dataset.slot = slot;
      b.title = "Show or hide in all plots";
      b.append(Charts.swatch(slot), run.name);
      b.addEventListener("click", () => {
        const shown = Charts.toggle(slot);
        for (const other of document.querySelectorAll(`.legend [data-slot="${slot}"]`)) other.setAttribute("aria-pressed", String(shown));
      });
      legend.appendChild(b);
    });
  }
  for (const cell of document.querySelectorAll("[data-swatch]")) cell.prepend(Charts.swatch(Number(cell.dataset.swatch)));

  for (const [name, spec] of Object.entries(data.bars)) {
    if (at(name)) Charts.bars(at(name), { ref: spec.ref, log: spec.log, rows: spec.rows.map((r, slot) => ({ ...r, slot, name: data.runs[slot].name })) });
  }
  const c = data.curves;
  const share = { fmt: "share", range: [0, 1], label: "share of finished jobs" };
  if (c) {
    Charts.lines(at("jct-cdf"), { series: series(c.jct), step: true, first: 0, x: { fmt: "time", kind: "log", label: "job completion time", tip: "JCT up to " }, y: share });
    Charts.lines(at("queueing-cdf"), { series: series(c.queueing), step: true, first: 0, x: { fmt: "time", kind: "log", label: "time without GPUs (below 1 s drawn at 1 s)", tip: "waiting up to " }, y: share });
    Charts.lines(at("load"), { series: series(c.load, c.time), nearest: true, x: { fmt: "time", label: "time since the first submission", tip: "around " }, y: { fmt: "share", range: [0, 1], label: "GPUs held" } });
    Charts.lines(at("queue"), { series: series(c.queue, c.time), nearest: true, x: { fmt: "time", label: "time since the first submission", tip: "around " }, y: { fmt: "count", label: "jobs waiting" } });

    const d = data.demand;
    const tip = (k) => `${d.names[k]} GPU${d.names[k] === "1" ? "" : "s"}, ${d.jobs[k].toLocaleString("en-US")} jobs`;
    const points = (name, values, text, least) => Charts.points(at(name), { names: d.names, counts: d.jobs, tip, fmt: "time", label: text, xLabel: "GPUs asked for (jobs below)", least,
      series: values.map((y, slot) => ({ name: data.runs[slot].name, slot, y })) });
    points("jct-demand", d.jct, "mean JCT", 0);
    points("queueing-demand", d.queueing, "mean queueing", 1);
  }

  if (at("gains")) {
    const colours = ["#0072b2", "#8cc4e4", "#c4c8cc", "#f3b183", "#d55e00"];
    Charts.stacked(at("gains"), { parts: data.bands.map((name, k) => ({ name, colour: colours[k] })), rows: data.gains.map((g) => ({ name: g.name, slot: g.slot, shares: g.bands })) });
    const low = Math.min(...data.gains.map((g) => g.ratio[0] ?? 1)), high = Math.max(...data.gains.map((g) => g.ratio[g.ratio.length - 1] ?? 1));
    const limit = (v) => Math.min(1000, Math.max(0.001, v));
    Charts.lines(at("ratio"), { series: data.gains.map((g) => ({ name: g.name, slot: g.slot, x: g.share, y: g.ratio })), nearest: true,
      x: { fmt: "share", label: "share of jobs, best off first", fromZero: true, tip: "best-off " },
      y: { fmt: "ratio", kind: "log", gap: 24, range: [limit(Math.min(low, 0.5)), limit(Math.max(high, 2))], label: `JCT over that under ${data.baseline}` },
      refs: [{ y: 1, label: "same JCT" }] });
  }
  if (at("levels")) {
    Charts.stacked(at("levels"), { parts: data.levels.names.map((name, k) => ({ name: `within one ${name}`, colour: levelColour(k) })),
      rows: data.levels.shares.map((shares, slot) => ({ name: data.runs[slot].name, slot, shares })) });
  }
  for (const [name, spec] of Object.entries(data.plots || {})) {
    if (!at(name)) continue;
    if (spec.own) Charts.ownLegend(at(name), spec.series);
    Charts.lines(at(name), spec);
  }
  if (at("gantt")) gantt = Gantt.mount(at("gantt"), data.gantt, data.runs, levelColour);
  root.dataset.ready = "yes";
})();
