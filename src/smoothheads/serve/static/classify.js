// One image, and its certificate that tightens while votes arrive.

import { chart } from "./chart.js";
import { chosen, chooser, firstSample, models } from "./choose.js";
import { bars, down, error, h, meaning, show, sure, tell, whole } from "./dom.js";
import { get, post, query } from "./net.js";
import { direction, field, moved, paint, read } from "./pixels.js";

export async function view(main, parameters, signal) {
  show(main, h("h1", {}, "Classify"), h("p", { class: "soft" }, "loading…"));
  const { names, descriptions, limits } = await models(signal);
  if (names.length) show(main, h("h1", {}, "Classify"), h("p", { class: "soft" }, `loading ${descriptions[chosen().model] || "the classifier"}…`));
  else show(main, h("h1", {}, "Classify"));
  if (!names.length) { main.append(h("p", { class: "lead" }, "There is no classifier in this folder. Serve a checkpoint, a training run or an export; ", h("a", { href: "#/runs" }, "the runs are here"), ".")); return; }
  if (names.includes(parameters.get("model"))) chosen().model = parameters.get("model");
  const facts = await get(`/v1/model?${query({ model: chosen().model })}`, signal);
  if (!chosen().blob) await firstSample(signal);
  if (signal.aborted) return; // another view has taken the place
  const result = h("section", { "aria-label": "Result" });
  let running = null;
  const again = (options = {}) => {
    running?.abort();
    running = new AbortController();
    signal.addEventListener("abort", () => running.abort());
    certify(result, facts, limits, options, running, again);
  };
  const side = await chooser({ names, descriptions, facts, signal, onImage: () => again(), onModel: () => { running?.abort(); view(main, new URLSearchParams(), signal); } });
  if (signal.aborted) return;
  show(main, h("h1", {}, "Classify"),
    h("p", { class: "lead" }, `Every prediction is a vote over noisy copies of the image (noise of standard deviation ${facts.sigma}). The more votes, the larger the change that provably does not matter.`),
    h("p", { class: "soft" }, facts.notes.join(" ")),
    h("div", { class: "split" }, side, result));
  if (chosen().blob) again();
  else show(result, h("div", { class: "panel" }, h("p", {}, "Choose an image to begin.")));
}

async function certify(place, facts, limits, { resize = false }, running, again) {
  const { signal } = running;
  const answer = h("strong", { class: "go", id: "answer" }, "…");
  const { label } = chosen();
  const radius = h("strong", { class: "go", id: "radius" }, "0.000");
  const means = h("small", { id: "means" }, "");
  const samples = h("strong", { id: "samples" }, "0");
  const says = h("div", { class: "says" });
  const state = h("span", { class: "soft", id: "state" }, "loading the network and the image…");
  const stop = h("button", { type: "button", class: "main", id: "stop", onclick: () => running.abort() }, "Stop");
  const votes = bars();
  const history = { xs: [0], ys: [0] };
  const graph = h("div", {});
  const views = h("div", { class: "views" });
  let pictures = null, last = null;
  const { blob } = chosen();

  place.scrollIntoView({ block: "nearest" });
  show(place, h("div", { class: "panel" },
    h("div", { class: "answer" }, h("div", {}, h("span", {}, "prediction"), answer), label === null ? null : h("div", {}, h("span", {}, "true label"), h("strong", { id: "label" }, label)), h("div", {}, h("span", {}, `certified radius (${facts.norm})`), radius, means), h("div", {}, h("span", {}, "votes"), samples)),
    h("div", { class: "row" }, stop, state), says, views, h("h3", {}, "Votes"), votes.element, h("h3", {}, "How the radius grew"), graph));

  const finish = (text) => {
    state.textContent = text;
    stop.replaceWith(h("div", { class: "row" },
      h("button", { type: "button", class: "main", onclick: () => again({ resize }) }, "Start again"),
      facts.norm === "l2" ? h("a", { class: "button", href: "#/attack" }, "Attack it") : null));
    draw();
  };
  let drawn = 0;
  const draw = () => {
    drawn = performance.now();
    if (last && history.xs.length > 2) show(graph, chart({ lines: [{ name: "radius", xs: history.xs, ys: history.ys }], x: "votes", y: "radius", format: (v) => v.toFixed(3), label: `The certified radius after ${last.n} votes is ${down(last.radius)}` }));
  };
  try {
    for await (const { kind, data } of post("/v1/certify", { image: blob, model: chosen().model, resize, n: limits.n }, signal)) {
      if (kind === "waiting") state.textContent = data.position ? `waiting: number ${data.position} in the queue` : "opening the network…";
      if (kind === "start") pictures = await look(views, data.picture, facts);
      if (kind === "moment") {
        last = data;
        if (chosen().blob === blob) chosen().certificate = data;
        if (performance.now() - drawn > 400 && !graph.matches(":hover")) draw();
        if (label !== null) answer.className = data.abstained ? "" : data.class === label ? "good" : "bad";
        means.textContent = data.radius > 0 ? meaning(data.radius, facts) : "";
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
      if (kind === "end") finish({ n: "All votes are counted.", seconds: "Time is up.", radius: "The radius is shown." }[data.reason]);
    }
  } catch (problem) {
    if (signal.aborted) { finish(last ? "Stopped. What stands here holds." : "Stopped."); return; }
    show(place, error(problem.message, problem.resize ? h("div", { class: "row" }, h("button", { type: "button", onclick: () => again({ resize: true }) }, "Resize it and go on")) : null));
  }
}

function sentence({ abstained, class: name, radius }, facts) {
  const { alpha, norm, scope } = facts;
  if (abstained) return [h("p", {}, "No class has a proven majority yet, so nothing is claimed."), h("p", { class: "soft" }, "More votes may settle it; an image on the border between two classes never settles.")];
  const l1 = norm === "l1";
  return [
    h("p", {}, "However somebody changes this image, as long as the change is smaller than ", h("b", {}, down(radius)), ` (${meaning(radius, facts)}), the prediction stays `, h("b", {}, `“${name}”`), ". We are ", h("b", {}, `${sure(alpha)} sure`), " of that, at every moment: stop when you like, what stands here holds."),
    h("p", { class: "soft" }, l1 ? "The size of a change is the sum over all pixels of how far each is moved, pixels counted from 0 to 1." : "The size of a change is its length: the root of the sum of squares over all pixels, counted from 0 to 1.", " It does not say that the prediction is correct. ", h("span", {}, `Scope: ${scope}.`)),
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
