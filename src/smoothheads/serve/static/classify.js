// One image, and its certificate that tightens while votes arrive.

import { chart } from "./chart.js";
import { chosen, chooser, models } from "./choose.js";
import { bars, down, error, h, percent, show, tell, whole } from "./dom.js";
import { get, post, query } from "./net.js";
import { direction, field, moved, paint, read } from "./pixels.js";

export async function view(main, parameters, signal) {
  const { names, limits } = await models(signal);
  show(main, h("h1", {}, "Classify"));
  if (!names.length) { main.append(h("p", { class: "lead" }, "There is no classifier in this folder. Serve a checkpoint, a training run or an export; ", h("a", { href: "#/runs" }, "the runs are here"), ".")); return; }
  if (names.includes(parameters.get("model"))) chosen().model = parameters.get("model");
  const facts = await get(`/v1/model?${query({ model: chosen().model })}`, signal);
  const result = h("section", { "aria-label": "Result" });
  let running = null;
  const again = (options = {}) => {
    running?.abort();
    running = new AbortController();
    signal.addEventListener("abort", () => running.abort());
    certify(result, facts, limits, options, running, again);
  };
  const side = await chooser({ names, facts, signal, onImage: () => again(), onModel: () => { running?.abort(); view(main, new URLSearchParams(), signal); } });
  main.append(
    h("p", { class: "lead" }, `Every answer is a vote over noisy samples of the image (noise of deviation ${facts.sigma}). The more samples, the farther the answer is proved to hold.`),
    h("p", { class: "soft" }, facts.notes.join(" ")),
    h("div", { class: "split" }, side, result));
  if (chosen().blob) again();
  else show(result, h("div", { class: "panel" }, h("p", {}, "Choose an image to begin.")));
}

async function certify(place, facts, limits, { resize = false }, running, again) {
  const { signal } = running;
  const answer = h("strong", { class: "go", id: "answer" }, "…");
  const radius = h("strong", { class: "go", id: "radius" }, "0.000");
  const samples = h("strong", { id: "samples" }, "0");
  const says = h("div", { class: "says" });
  const state = h("span", { class: "soft", id: "state" }, "asking…");
  const stop = h("button", { type: "button", class: "main", id: "stop", onclick: () => running.abort() }, "Stop");
  const votes = bars();
  const history = { xs: [0], ys: [0] };
  const graph = h("div", {});
  const views = h("div", { class: "views" });
  let pictures = null, last = null;

  place.scrollIntoView({ block: "nearest" });
  show(place, h("div", { class: "panel" },
    h("div", { class: "answer" }, h("div", {}, h("span", {}, "answer"), answer), h("div", {}, h("span", {}, `certified radius (${facts.norm})`), radius), h("div", {}, h("span", {}, "samples"), samples)),
    h("div", { class: "row" }, stop, state), says, views, h("h3", {}, "Votes"), votes.element, h("h3", {}, "How the radius grew"), graph));

  const finish = (text) => {
    state.textContent = text;
    stop.replaceWith(h("div", { class: "row" },
      h("button", { type: "button", class: "main", onclick: () => again({ resize }) }, "Start again"),
      facts.norm === "l2" ? h("a", { class: "button", href: "#/attack" }, "Attack it") : null));
    if (last) show(graph, chart({ lines: [{ name: "radius", xs: history.xs, ys: history.ys }], x: "samples", y: "radius", format: (v) => v.toFixed(3), label: `The certified radius after ${last.n} samples is ${down(last.radius)}` }));
  };
  try {
    for await (const { kind, data } of post("/v1/certify", { image: chosen().blob, model: chosen().model, resize, n: limits.n }, signal)) {
      if (kind === "waiting") state.textContent = data.position ? `waiting: number ${data.position} in the queue` : "opening the network…";
      if (kind === "start") pictures = await look(views, data.picture, facts);
      if (kind === "moment") {
        last = data;
        answer.textContent = data.abstained ? "not sure yet" : data.class;
        radius.textContent = down(data.radius);
        samples.textContent = whole(data.n);
        state.textContent = "votes arrive; stop when you like";
        votes.update(facts.classes, data.votes);
        history.xs.push(data.n);
        history.ys.push(data.radius);
        show(says, sentence(data, facts));
        pictures?.at(data.radius);
        tell(`${answer.textContent}, radius ${down(data.radius)}, ${data.n} samples`);
      }
      if (kind === "end") finish({ n: "All samples are used.", seconds: "Time is up.", radius: "The radius is shown." }[data.reason]);
    }
  } catch (problem) {
    if (signal.aborted) { finish(last ? "Stopped. What stands here holds." : "Stopped."); return; }
    const size = /pixels|grey image/.test(problem.message) && !resize;
    show(place, error(problem.message, size ? h("div", { class: "row" }, h("button", { type: "button", onclick: () => again({ resize: true }) }, "Resize it and go on")) : null));
  }
}

function sentence({ abstained, class: name, radius }, { alpha, norm, scope }) {
  const sure = percent(1 - alpha, Math.max(1, Math.ceil(-Math.log10(alpha)) - 2));
  if (abstained) return [h("p", {}, "No class has a proven majority yet, so nothing is claimed."), h("p", { class: "soft" }, "More samples may settle it; an image on the border between two classes never settles.")];
  const l1 = norm === "l1";
  return [
    h("p", {}, "However somebody changes this image, as long as the change is smaller than ", h("b", {}, down(radius)), `, the answer stays `, h("b", {}, `“${name}”`), ". We are ", h("b", {}, `${sure} sure`), " of that, at every moment: stop when you like, what stands here holds."),
    h("p", { class: "soft" }, l1 ? "The size of a change is the sum over all pixels of how far each is moved, pixels counted from 0 to 1." : "The size of a change is its length: the root of the sum of squares over all pixels, counted from 0 to 1.", " It does not say that the answer is right. ", h("span", {}, `Scope: ${scope}.`)),
  ];
}

async function look(place, source, { shape, sigma, noise, norm }) {
  const picture = await read(source);
  const [channels] = shape;
  const panel = (text) => {
    const canvas = h("canvas", { class: "pixel", role: "img", "aria-label": text });
    return { canvas, figure: h("figure", {}, canvas, h("figcaption", {}, text)) };
  };
  const panels = [panel("the image"), panel("a noisy sample"), panel("another"), panel("a change of exactly the radius")];
  show(place, panels.map((each) => each.figure));
  paint(panels[0].canvas, picture);
  for (const i of [1, 2]) paint(panels[i].canvas, moved(picture, field(picture, channels, noise), sigma));
  const change = direction(picture, channels, norm);
  const at = (radius) => paint(panels[3].canvas, moved(picture, change, radius));
  at(0);
  return { at };
}
