// Ledgers, logs and training runs of the folder; what changes on the disk changes here.

import { chart } from "./chart.js";
import { bars, down, error, h, percent, show, table, whole } from "./dom.js";
import { get, query } from "./net.js";

const PULSE = 3000;
const link = (view, values) => `#/${view}?${query(values)}`;
const kept = { filter: "", sort: "id", down: false };

// Asks again and again while the page is seen; draws when something is new.
async function watch(path, signal, draw) {
  let last = null;
  for (;;) {
    if (!document.hidden || last === null) {
      const data = await get(path, signal).catch((problem) => { if (last === null) throw problem; return null; });
      if (signal.aborted) return;
      const text = JSON.stringify(data);
      if (data !== null && text !== last) { draw(data); last = text; }
    }
    await new Promise((resolve) => { setTimeout(resolve, PULSE); signal.addEventListener("abort", resolve, { once: true }); });
    if (signal.aborted) return;
  }
}

const COLUMNS = [
  ["id", "ledger", (row) => row.id],
  ["data", "data", (row) => row.data ?? "–"],
  ["sigma", "sigma", (row) => row.sigma ?? "–", true],
  ["n", "n", (row) => (row.n ? whole(row.n) : "–"), true],
  ["images", "images", (row) => (row.expected && row.expected !== row.images ? `${whole(row.images)} of ${whole(row.expected)}` : whole(row.images ?? 0)), true],
  ["acr", "ACR", (row) => (row.acr ? row.acr.value.toFixed(3) : "–"), true],
  ["accuracy", "certified", (row) => (row.accuracy === undefined ? "–" : percent(row.accuracy)), true],
];
const value = (row, key) => (key === "acr" ? row.acr?.value : row[key]) ?? "";

export async function list(main, parameters, signal) {
  const ids = new Set(parameters.getAll("id"));
  const body = h("tbody", {}), trainings = h("div", {}), studies = h("div", {}), picked = h("section", { "aria-label": "Chosen ledgers" }), folder = h("span", {});
  const filter = h("input", { type: "search", "aria-label": "Filter ledgers", placeholder: "filter", value: kept.filter, oninput: () => { kept.filter = filter.value; rows(); } });
  const head = h("tr", {});
  let seen = { ledgers: [], trainings: [] };
  let shown = null;
  show(body, h("tr", {}, h("td", { colspan: 9 }, "loading…")));
  show(main, h("h1", {}, "Runs"), h("p", { class: "lead" }, "Everything that was certified or trained in ", folder, ". Choose ledgers to see their curves over each other."),
    h("div", { class: "row" }, filter), h("div", { class: "wide" }, h("table", { class: "list" }, h("caption", { class: "unseen" }, "Ledgers"), h("thead", {}, head), body)), picked, studies, trainings);

  function heads() {
    show(head, h("th", { scope: "col" }, h("span", { class: "unseen" }, "chosen")), COLUMNS.map(([key, name, , number]) => h("th", { scope: "col", class: number ? "number" : null, "aria-sort": kept.sort === key ? (kept.down ? "descending" : "ascending") : null },
      h("button", { type: "button", onclick: () => { kept.down = kept.sort === key ? !kept.down : Boolean(number); kept.sort = key; heads(); rows(); } }, name, kept.sort === key ? (kept.down ? " ↓" : " ↑") : ""))), h("th", { scope: "col" }, ""));
  }
  function rows() {
    const words = kept.filter.toLowerCase().split(/\s+/);
    const matching = seen.ledgers.filter((row) => words.every((word) => `${row.id} ${row.data ?? ""} ${row.sigma ?? ""} ${row.budget ?? ""}`.toLowerCase().includes(word)));
    matching.sort((a, b) => { const [x, y] = [value(a, kept.sort), value(b, kept.sort)]; return (x < y ? -1 : x > y ? 1 : 0) * (kept.down ? -1 : 1); });
    show(body, matching.map((row) => h("tr", {}, h("td", {}, row.error ? null : h("input", { type: "checkbox", checked: ids.has(row.id), "aria-label": `Choose ${row.id}`, onchange: (event) => choose(row.id, event.target.checked) })),
      COLUMNS.map(([, , text, number]) => h("td", { class: number ? "number" : null }, text(row))),
      h("td", {}, row.error ? h("span", { class: "tag bad", title: row.error }, "not readable") : row.live ? h("span", { class: "tag live" }, "● live") : row.expected && row.expected > row.images ? h("span", { class: "tag" }, "unfinished") : null))));
    if (!matching.length) show(body, h("tr", {}, h("td", { colspan: 9 }, seen.ledgers.length ? "No ledger matches." : "No ledger yet; `smoothheads certify` writes one.")));
  }
  function choose(id, on) {
    if (on) ids.add(id); else ids.delete(id);
    history.replaceState(null, "", ids.size ? link("runs", { id: [...ids] }) : "#/runs");
    curves();
  }
  async function curves() {
    shown?.abort();
    shown = new AbortController();
    signal.addEventListener("abort", () => shown.abort());
    if (!ids.size) { show(picked); return; }
    const search = query({ id: [...ids] });
    await watch(`/v1/runs/curves?${search}`, shown.signal, (data) => show(picked, h("h2", {}, "Certified accuracy"), accuracy(data.curves),
      h("div", { class: "row" }, downloads("curves", search),
        ids.size === 2 ? h("a", { class: "button", id: "compare", href: link("compare", { id: [...ids] }) }, "Paired difference") : h("span", { class: "soft" }, ids.size > 2 ? "" : "Choose a second one for the paired difference.")),
      data.tables.length ? data.tables.map(table) : data.notes.map((note) => h("p", { class: "soft" }, note)))).catch((problem) => { if (!shown.signal.aborted) show(picked, error(problem.message)); });
  }
  heads();
  if (ids.size) curves();
  await watch("/v1/runs", signal, (data) => {
    seen = data;
    folder.textContent = data.folder;
    rows();
    show(studies, data.studies.length ? [h("h2", {}, "Studies"), h("ul", {}, data.studies.map((id) => h("li", {}, h("a", { href: link("study", { id }) }, id))))] : null);
    show(trainings, data.trainings.length ? [h("h2", {}, "Training"), h("div", { class: "wide" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["", "run", "epochs", "loss", "state"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, data.trainings.map((run) => h("tr", {}, h("td", {}), h("td", {}, h("a", { href: link("training", { id: run.id }) }, run.id)), h("td", {}, String(run.last.epoch ?? run.epochs)), h("td", {}, run.last.loss === undefined ? "–" : run.last.loss.toPrecision(4)), h("td", {}, run.live ? h("span", { class: "tag live" }, "● live") : run.finished ? "finished" : h("span", { class: "tag" }, "unfinished")))))))] : null);
  });
}

function accuracy(curves) {
  return chart({
    lines: curves.map((curve) => ({ name: curve.id, xs: curve.radii, ys: curve.accuracy, low: curve.low, high: curve.high })),
    x: `${curves[0].norm} radius (pixels in [0, 1])`, y: "certified accuracy", format: (v) => percent(v), tick: (v) => percent(v, 0), top: 1, label: `Certified accuracy over the radius of ${curves.map((curve) => curve.id).join(", ")}, with 95 % intervals`,
  });
}

export async function compare(main, parameters, signal) {
  const ids = parameters.getAll("id");
  show(main, h("h1", {}, "Paired difference"));
  const place = h("div", {}, h("p", { class: "soft" }, "loading…"));
  main.append(h("p", { class: "lead" }, h("b", {}, ids[1] ?? "?"), " against ", h("b", {}, ids[0] ?? "?"), ", image by image. ", h("a", { href: link("runs", { id: ids }) }, "Their curves")), place);
  const kinds = { all: () => true, better: (row) => row.gain > 0, worse: (row) => row.gain < 0 };
  let kind = "all";
  await watch(`/v1/runs/compare?${query({ id: ids })}`, signal, function draw(data) {
    const rows = data.rows.filter(kinds[kind]);
    show(place, data.notes.map((note) => h("p", { class: "soft" }, note)),
      h("div", { class: "cards" }, h("div", {}, h("span", {}, "certified farther"), h("strong", {}, whole(data.gain.better)), h("small", {}, `of ${whole(data.images)} images`)), h("div", {}, h("span", {}, "less far"), h("strong", {}, whole(data.gain.worse)), h("small", {}, "or not any more")), h("div", {}, h("span", {}, "differ in all"), h("strong", {}, whole(data.differ)))),
      data.tables.map(table), h("h2", {}, "Images on which they differ"),
      h("div", { class: "row", role: "group", "aria-label": "Which images" }, Object.entries({ all: "all", better: "certified farther", worse: "less far" }).map(([key, text]) => h("button", { type: "button", "aria-pressed": String(kind === key), class: kind === key ? "main" : null, onclick: () => { kind = key; draw(data); } }, text))),
      h("div", { class: "wide" }, h("table", { class: "list", id: "differ" }, h("thead", {}, h("tr", {}, ["", "image", "label", ids[0], "radius", ids[1], "radius", "gain"].map((name) => h("th", { scope: "col", class: /radius|gain/.test(name) ? "number" : null }, name)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, h("td", {}, h("img", { class: "pixel", width: 28, height: 28, alt: "", loading: "lazy", src: `/v1/runs/picture?${query({ id: ids[0], index: row.index })}`, onerror: (event) => event.target.remove() })),
          h("td", {}, h("a", { href: link("image", { id: ids, index: row.index }) }, String(row.index))), h("td", {}, row.label), h("td", { class: row.first === row.label ? "good" : "bad" }, row.first), h("td", { class: "number" }, down(row.first_radius)), h("td", { class: row.second === row.label ? "good" : "bad" }, row.second), h("td", { class: "number" }, down(row.second_radius)), h("td", { class: "number" }, (row.gain > 0 ? "+" : "") + row.gain.toFixed(3))))))),
      data.differ > data.rows.length ? h("p", { class: "soft" }, `The ${data.rows.length} largest differences are shown.`) : null);
  });
}

export async function image(main, parameters, signal) {
  const ids = parameters.getAll("id"), index = parameters.get("index");
  const data = await get(`/v1/runs/image?${query({ id: ids, index })}`, signal);
  const first = data.logs.find((log) => log.image).image;
  const step = (to, text) => (to === null ? null : h("a", { class: "button", href: link("image", { id: ids, index: to }) }, text));
  show(main, h("h1", {}, `Image ${index}`), h("div", { class: "row" }, step(first.previous, "← previous"), step(first.next, "next →"), h("a", { href: link("runs", { id: ids }) }, "Curves"), ids.length === 2 ? h("a", { href: link("compare", { id: ids }) }, "Paired difference") : null),
    h("div", { class: "row" }, h("img", { class: "pixel small", alt: `Image ${index}, ${first.label}`, src: `/v1/runs/picture?${query({ id: ids[0], index })}`, onerror: (event) => event.target.remove() }), h("p", {}, "Label: ", h("b", {}, first.label))),
    data.logs.map(({ id, image: facts }) => (facts ? ledger(id, facts) : h("section", { class: "panel" }, h("h2", {}, id), h("p", {}, "This ledger does not hold the image.")))));
}

function ledger(id, facts) {
  const votes = facts.votes ?? facts.selection;
  const aggregations = (votes ?? []).filter(({ aggregation }) => aggregation === "ensemble" || aggregation.startsWith("head-"));
  return h("section", { class: "panel" }, h("h2", {}, id), h("div", { class: "answer" },
    h("div", {}, h("span", {}, "prediction"), h("strong", { class: facts.correct ? "good" : "bad" }, facts.prediction)), h("div", {}, h("span", {}, `certified radius (${facts.norm})`), h("strong", {}, down(facts.radius))),
    facts.k === undefined ? null : h("div", {}, h("span", {}, "votes for it"), h("strong", {}, `${whole(facts.k)} of ${whole(facts.n)}`))),
  facts.p_lower === undefined ? null : h("p", { class: "soft" }, `Its probability under noise is at least ${down(facts.p_lower, 4)}; sigma ${facts.sigma}, alpha ${facts.alpha}, ${facts.n0} samples chose the class.`),
  aggregations.length ? h("h3", {}, facts.votes ? "Votes per head" : "Votes of the selection per head") : null,
  h("div", { class: "views" }, aggregations.map(({ aggregation, counts }) => { const drawn = bars(6); drawn.update(facts.classes, counts); return h("figure", {}, h("figcaption", {}, aggregation), drawn.element); })));
}

function downloads(what, search) {
  return ["png", "csv", "tex"].map((kind) => h("a", { class: "button", href: `/v1/runs/${what}.${kind}?${search}`, download: "" }, kind === "tex" ? "LaTeX" : kind.toUpperCase()));
}

export async function study(main, parameters, signal) {
  const id = parameters.get("id");
  const place = h("div", {}, h("p", { class: "soft" }, "loading…"));
  show(main, h("h1", {}, "Study"), h("p", { class: "lead" }, id, " ", h("a", { href: "#/runs" }, "All runs")), place);
  await watch(`/v1/runs/study?${query({ id })}`, signal, (data) => show(place, data.tables.map(table), h("div", { class: "row" }, downloads("study", query({ id })))));
}

// What is measured during training, in words and in the order in which it is shown; true: a fraction.
const MEASURES = [
  ["loss", "loss"],
  ["validation_accuracy", "validation accuracy", true],
  ["head_loss", "loss of a head"],
  ["easy_fraction", "easy images", true],
  ["mean_weight", "mean weight of an image", true],
  ["effective_share", "images that count", true],
  ["lambda", "threshold between easy and hard"],
  ["cosine_all", "cosine between heads"],
  ["cosine_weights", "cosine between weights of heads"],
  ["lr", "learning rate"],
  ["seconds", "seconds"],
];

export async function training(main, parameters, signal) {
  const id = parameters.get("id");
  const place = h("div", {}, h("p", { class: "soft" }, "loading…"));
  show(main, h("h1", {}, "Training"), h("p", { class: "lead" }, id, " ", h("a", { href: "#/runs" }, "All runs")), place);
  await watch("/v1/runs", signal, ({ trainings }) => {
    const run = trainings.find((each) => each.id === id);
    if (!run) { show(place, error("There is no such run.")); return; }
    const place_of = (key) => { const at = MEASURES.findIndex(([name]) => name === key); return at < 0 ? MEASURES.length : at; };
    const keys = [...new Set(run.history.flatMap(Object.keys))].filter((key) => key !== "epoch").sort((a, b) => place_of(a) - place_of(b));
    const shown = keys.map((key) => ({ key, points: run.history.map((line, i) => [line.epoch ?? i + 1, line[key]]).filter(([, y]) => y !== undefined) })).filter(({ points }) => points.length);
    show(place, h("p", {}, run.live ? h("span", { class: "tag live" }, "● live") : run.finished ? "finished" : "unfinished", ` after ${run.epochs} epochs`),
      h("div", { class: "pairs" }, shown.map(({ key, points }) => {
        const [, name = key.replaceAll("_", " "), share = false] = MEASURES[place_of(key)] ?? [];
        const format = share ? (v) => percent(v) : undefined;
        return h("div", {}, h("h3", {}, name), chart({ lines: [{ name, xs: points.map(([x]) => x), ys: points.map(([, y]) => y) }], x: "epoch", y: "", format, tick: share ? (v) => percent(v, 0) : undefined, columns: innerWidth > 800 ? 2 : 1, label: `${name} over the epochs` }));
      })));
  });
}
