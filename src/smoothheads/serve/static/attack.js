// An image pushed away from its class: inside the certified radius the answer must hold.

import { chosen, chooser, firstSample, models } from "./choose.js";
import { bars, down, error, h, meaning, show, sure, tell } from "./dom.js";
import { get, post, query } from "./net.js";

const SAMPLES = 3000;
const farthest = (radius, { sigma }) => Math.max(5 * radius, 3 * sigma);

export async function view(main, parameters, signal) {
  show(main, h("h1", {}, "Attack"), h("p", { class: "soft" }, "loading the classifier…"));
  const { names, descriptions } = await models(signal);
  if (!names.length) { show(main, h("h1", {}, "Attack"), h("p", { class: "lead" }, "There is no classifier in this folder.")); return; }
  const facts = await get(`/v1/model?${query({ model: chosen().model })}`, signal);
  if (!chosen().blob) await firstSample(signal);
  if (signal.aborted) return; // another view has taken the place
  const result = h("section", { "aria-label": "Attack" });
  let running = null;
  const again = (options = {}) => {
    running?.abort();
    running = new AbortController();
    signal.addEventListener("abort", () => running.abort());
    attack(result, facts, options, running.signal, again);
  };
  const side = await chooser({ names, descriptions, facts, signal, onImage: () => again(), onModel: () => { running?.abort(); view(main, parameters, signal); } });
  if (signal.aborted) return;
  show(main, h("h1", {}, "Attack"), h("p", { class: "lead" }, "An attack follows the gradient of the network to the direction that hurts most. Push the slider: up to the certified radius the prediction holds, whatever the direction."), h("div", { class: "split" }, side, result));
  if (facts.norm !== "l2") { show(result, error(`Attacks are for l2 radii; this network has ${facts.norm} radii.`)); return; }
  if (chosen().blob) again();
  else show(result, h("div", { class: "panel" }, h("p", {}, "Choose an image to begin.")));
}

async function attack(place, facts, { resize = false }, signal, again) {
  const { blob, model } = chosen();
  const fields = { image: blob, model, resize };
  const state = h("p", { class: "soft", role: "status", id: "state" }, "loading the image and certifying it…");
  show(place, h("div", { class: "panel" }, state));
  try {
    // The certificate that Classify showed, if there is one: the same image has the same radius everywhere.
    let { certificate } = chosen();
    if (certificate === null) for await (const { kind, data } of post("/v1/certify", { ...fields, n: SAMPLES }, signal)) if (kind === "moment") certificate = data;
    if (chosen().blob === blob) chosen().certificate = certificate;
    const radius = certificate.radius;
    const panel = slider(place, facts, certificate, state);
    state.textContent = "looking for the direction that hurts most…";
    for await (const { kind, data } of post("/v1/attack", { ...fields, radius: farthest(radius, facts), n: 500 }, signal)) {
      if (kind === "frame") { panel.add(data); state.textContent = "pushing…"; }
      if (kind === "end") { state.textContent = panel.verdict(); tell(state.textContent); }
    }
  } catch (problem) {
    if (signal.aborted) return;
    show(place, error(problem.message, problem.resize ? h("div", { class: "row" }, h("button", { type: "button", onclick: () => again({ resize: true }) }, "Resize it and go on")) : null));
  }
}

function slider(place, facts, certificate, state) {
  const { radius } = certificate;
  const frames = [];
  const top = farthest(radius, facts);
  const input = h("input", { type: "range", class: "slider", id: "push", min: 0, max: top, step: "any", value: 0, "aria-label": "Size of the change", oninput: () => look(Number(input.value)) });
  const picture = h("img", { class: "pixel", alt: "The image after the push" });
  const votes = bars();
  const distance = h("strong", {}, "0.000"), answer = h("strong", { class: "go", id: "answer" }, "…"), where = h("p", {});
  const place2 = (value) => `${(100 * value) / top}%`;
  show(place, h("div", { class: "panel" }, state,
    h("div", { class: "answer" }, h("div", {}, h("span", {}, "prediction"), answer), h("div", {}, h("span", {}, "size of the change"), distance), h("div", {}, h("span", {}, "certified radius"), h("strong", { id: "radius" }, down(radius)), h("small", {}, radius > 0 ? meaning(radius, facts) : ""))),
    input,
    h("div", { class: "scale" }, h("span", { style: { left: "1%" } }, "0"), radius > 0 ? h("span", { class: "mark", style: { left: place2(radius) } }, "▲ radius") : null, h("span", { style: { left: "97%" } }, top.toFixed(2))),
    h("div", { class: "says" }, where),
    h("div", { class: "split" }, h("figure", {}, picture), h("div", {}, votes.element))));

  // The slider stops where there is a picture, so that all that is shown belongs to its position.
  function look(wanted) {
    if (!frames.length) return;
    const at = frames.reduce((near, frame) => (Math.abs(frame.distance - wanted) < Math.abs(near.distance - wanted) ? frame : near));
    if (Math.abs(at.distance - wanted) > top / 1000) input.value = at.distance;
    picture.src = at.picture;
    distance.textContent = at.distance.toFixed(3);
    answer.textContent = at.abstained ? "abstains" : at.class;
    answer.className = at.abstained || at.class === certificate.class ? "go" : "bad";
    votes.update(facts.classes, at.votes);
    const inside = at.distance < radius;
    show(where, certificate.abstained ? "This image has no certificate, so nothing is promised." : inside ? `Inside the certified radius: we are ${sure(facts.alpha)} sure that no change of this size alters the prediction.` : at.abstained ? "Beyond the radius nothing is promised; here no class has a proven majority." : at.class === certificate.class ? "Beyond the radius nothing is promised; here the prediction still holds." : "Beyond the radius nothing is promised, and here the attack has won.");
    input.setAttribute("aria-valuetext", `${at.distance.toFixed(3)}: ${answer.textContent}`);
  }
  return {
    add(frame) { frames.push(frame); frames.sort((a, b) => a.distance - b.distance); look(Number(input.value)); },
    verdict() {
      const other = frames.find((frame) => !frame.abstained && frame.class !== certificate.class);
      if (!other) return "The attack found no other prediction as far as it went. Push the slider.";
      return `The prediction first changes at ${other.distance.toFixed(3)}, ${radius > 0 ? `${(other.distance / radius).toFixed(2)} times the certified radius` : "without a certificate"}. Push the slider.`;
    },
  };
}
