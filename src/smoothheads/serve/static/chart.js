// Line charts with intervals: hover or use the arrow keys to read values.

import { h, s, show } from "./dom.js";

const COLOURS = 7; // in app.css, one set for light and one for dark
const colour = (i) => `var(--c${i % COLOURS})`;
const LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 42;

const nice = (top, count) => {
  const raw = top / count, scale = 10 ** Math.floor(Math.log10(raw));
  return [1, 2, 2.5, 5, 10].map((step) => step * scale).find((step) => step >= raw);
};
const ticks = (top, count) => {
  const step = nice(top, count);
  return Array.from({ length: Math.floor(top / step + 1e-9) + 1 }, (_, i) => +(i * step).toPrecision(6));
};

// lines: [{ name, xs, ys, low?, high? }]
export function chart({ lines, x, y, format = (v) => v.toPrecision(3), tick = format, top, label, columns = 1 }) {
  const W = Math.max(280, Math.min(760, document.getElementById("main").clientWidth / columns - 50)), H = Math.round(Math.max(220, W * 0.46));
  const right = Math.max(...lines.flatMap((line) => line.xs), 1e-9);
  const high = top ?? Math.max(...lines.flatMap((line) => line.ys), 1e-9) * 1.05;
  const floor = Math.min(0, ...lines.flatMap((line) => line.ys));
  const px = (value) => LEFT + (W - LEFT - RIGHT) * (value / right);
  const py = (value) => TOP + (H - TOP - BOTTOM) * (1 - Math.max(0, Math.min(1, (value - floor) / (high - floor))));
  const path = (xs, ys) => xs.map((value, i) => `${i ? "L" : "M"}${px(value).toFixed(1)} ${py(ys[i]).toFixed(1)}`).join("");
  const svg = s("svg", { style: { "max-width": `${W}px` }, viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label, tabindex: 0 });
  for (const value of ticks(right, W / 110)) {
    svg.append(s("line", { class: "grid", x1: px(value), x2: px(value), y1: TOP, y2: H - BOTTOM }), s("text", { x: px(value), y: H - BOTTOM + 17, "text-anchor": "middle" }, String(value)));
  }
  for (const value of [...(high > 1e-8 ? ticks(high, 5) : [0]), ...(floor < 0 ? ticks(-floor, 3).slice(1).map((tick) => -tick) : [])]) {
    svg.append(s("line", { class: "grid", x1: LEFT, x2: W - RIGHT, y1: py(value), y2: py(value) }), s("text", { x: LEFT - 7, y: py(value) + 4, "text-anchor": "end" }, tick(value)));
  }
  svg.append(s("text", { x: (LEFT + W - RIGHT) / 2, y: H - 6, "text-anchor": "middle" }, x), s("text", { x: 14, y: (TOP + H - BOTTOM) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(TOP + H - BOTTOM) / 2})` }, y));
  lines.forEach((line, i) => {
    if (line.low) svg.append(s("path", { d: `${path(line.xs, line.high)}L${path([...line.xs].reverse(), [...line.low].reverse()).slice(1)}Z`, style: { fill: colour(i) }, opacity: 0.15 }));
    svg.append(s("path", { d: path(line.xs, line.ys), fill: "none", style: { stroke: colour(i) }, "stroke-width": 2, "stroke-dasharray": i < COLOURS ? null : "5 3" }));
  });
  const cross = s("line", { class: "cross", y1: TOP, y2: H - BOTTOM, visibility: "hidden" });
  svg.append(cross);
  const tip = h("div", { class: "tip", role: "status", hidden: true });
  let at = null;

  function read(value) {
    at = Math.max(0, Math.min(right, value));
    cross.setAttribute("visibility", "visible");
    for (const end of ["x1", "x2"]) cross.setAttribute(end, px(at));
    const last = lines[0].xs.findLastIndex((other) => other <= at + 1e-12); // of one line the point that is shown
    const where = lines.length > 1 ? at.toPrecision(3) : String(lines[0].xs[Math.max(0, last)]);
    show(tip, h("b", {}, `${x.split(" (")[0]} ${where}`), lines.map((line, i) => {
      const beyond = at > line.xs.at(-1) + 1e-9;
      let k = line.xs.findIndex((other) => other > at + 1e-12) - 1;
      if (k < 0) k = line.xs.length - 1;
      const text = beyond ? "–" : format(line.ys[k]) + (line.low ? ` [${format(line.low[k])}, ${format(line.high[k])}]` : "");
      return h("div", {}, h("span", { style: { color: colour(i) } }, "● "), lines.length > 1 ? `${line.name}: ` : "", text);
    }));
    tip.hidden = false;
    const place = (px(at) / W) * 100;
    tip.style.left = place < 55 ? `calc(${place}% + .7rem)` : "auto";
    tip.style.right = place < 55 ? "auto" : `calc(${100 - place}% + .7rem)`;
    tip.style.top = "8%";
  }
  const hide = () => { tip.hidden = true; at = null; cross.setAttribute("visibility", "hidden"); };
  svg.addEventListener("pointermove", (event) => {
    const box = svg.getBoundingClientRect();
    read((((event.clientX - box.left) / box.width) * W - LEFT) / (W - LEFT - RIGHT) * right);
  });
  svg.addEventListener("pointerleave", hide);
  svg.addEventListener("blur", hide);
  svg.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    read((at ?? 0) + (step * right) / 50);
  });
  const legend = lines.length > 1 ? h("ul", { class: "legend" }, lines.map((line, i) => h("li", {}, h("i", { style: { "border-color": colour(i) } }), line.name))) : null;
  return h("div", {}, h("div", { class: "chart" }, svg, tip), legend);
}
