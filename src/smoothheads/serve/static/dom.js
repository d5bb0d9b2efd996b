// Elements from data. Text only ever becomes text nodes: a name from a file cannot become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(3).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, properties, ...children) => fill(document.createElement(tag), properties, children);
export const s = (tag, properties, ...children) => fill(document.createElementNS(SVG, tag), properties, children);
export const show = (element, ...children) => { element.replaceChildren(...children.flat(3).filter(Boolean)); return element; };

let said = 0;
export function tell(text) { // for screen readers, at most every other second
  const now = performance.now();
  if (now - said < 2000) return;
  said = now;
  document.getElementById("live").textContent = text;
}

export const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
export const whole = (value) => value.toLocaleString("en");
export function down(value, digits = 3) { // a radius is never shown larger than it is
  const scale = 10 ** digits;
  return (Math.floor(value * scale + 1e-9) / scale).toFixed(digits);
}

// What a radius means: how far one pixel, or every pixel, may change. Pixels count from 0 to 1.
export function meaning(radius, { shape: [channels, height, width], norm }) {
  const part = (share) => `${share < 0.095 ? Math.floor(1000 * share) / 10 : Math.floor(100 * share)} %`; // rounded down
  const one = norm === "l1" ? radius / channels : radius / Math.sqrt(channels);
  const every = norm === "l1" ? radius / (channels * height * width) : radius / Math.sqrt(channels * height * width);
  if (norm !== "l1" && norm !== "l2") return `like changing every pixel by ${part(radius)}`;
  const whole = Math.floor(norm === "l1" ? one : one ** 2);
  const first = one <= 1 ? `one pixel by ${part(one)}` : whole === 1 ? "one pixel completely" : `${whole} pixels completely`;
  return `like changing ${first}, or every pixel by ${part(every)}`;
}

export const sure = (alpha) => percent(1 - alpha, Math.max(1, Math.ceil(-Math.log10(alpha)) - 2));

export function error(text, ...more) { return h("div", { class: "error", role: "alert" }, text, ...more); }

export function table({ title, columns, rows, notes }) {
  const cell = (tag, { text, error: small, best }) =>
    h(tag, tag === "th" ? { scope: "row" } : {}, best ? h("b", {}, text) : text, small ? h("small", {}, small) : null);
  return h("figure", {}, h("h3", {}, title), h("div", { class: "wide", tabindex: 0, role: "region", "aria-label": title },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((each, i) => cell(i ? "td" : "th", each))))))),
  notes.length ? h("figcaption", {}, notes.join(" ")) : null);
}

// Votes per class: the bars with most votes, in the order of the classes.
export function bars(most = 12) {
  const list = h("div", { class: "bars", role: "list", "aria-label": "Votes per class" });
  let rows = [];
  function build(names, order) {
    rows = order.map((label) => {
      const fill = h("div", { class: "fill" });
      const count = h("span", { class: "count" });
      const item = [h("span", { class: "name", title: names[label] }, names[label]), h("div", { class: "track" }, fill), count];
      return { label, fill, count, item };
    });
    show(list, rows.map((row) => row.item));
  }
  return {
    element: list,
    update(names, votes) {
      const total = votes.reduce((sum, count) => sum + count, 0) || 1;
      const top = votes.indexOf(Math.max(...votes));
      let order = votes.map((_, label) => label);
      if (order.length > most) order = order.sort((a, b) => votes[b] - votes[a]).slice(0, most).sort((a, b) => a - b);
      if (order.join() !== rows.map((row) => row.label).join()) build(names, order);
      for (const { label, fill, count } of rows) {
        fill.style.width = `${(100 * votes[label]) / total}%`;
        fill.classList.toggle("top", label === top && votes[label] > 0);
        count.textContent = whole(votes[label]);
      }
    },
  };
}
