// An image pushed away from its class: inside the certified radius the answer must hold.

import { chosen, chooser, models } from "./choose.js";
import { bars, down, error, h, show, tell } from "./dom.js";
import { get, post, query } from "./net.js";

const SAMPLES = 3000;
const farthest = (radius, { sigma }) => Math.max(5 * radius, 3 * sigma);

export async function view(main, parameters, signal) {
  const { names } = await models(signal);
  show(main, h("h1", {}, "Attack"));
  if (!names.length) { main.append(h("p", { class: "lead" }, "There is no classifier in this folder.")); return; }
  const facts = await get(`/v1/model?${query({ model: chosen().model })}`, signal);
  const result = h("section", { "aria-label": "Attack" });
  let running = null;
  const again = (options = {}) => {
    running?.abort();
    running = new AbortController();
    signal.addEventListener("abort", () => running.abort());
    attack(result, facts, options, running.signal, again);
  };
  const side = await chooser({ names, facts, signal, onImage: () => again(), onModel: () => { running?.abort(); view(main, parameters, signal); } });
  main.append(h("p", { class: "lead" }, "An attack follows the network's gradient to the direction that hurts most. Push the slider: up to the certified radius the answer holds, whatever the direction."), h("div", { class: "split" }, side, result));
  if (facts.norm !== "l2") { show(result, error(`Attacks are for l2 radii; this network has ${facts.norm} radii.`)); return; }
  if (chosen().blob) again();
  else show(result, h("div", { class: "panel" }, h("p", {}, "Choose an image to begin.")));
}

async function attack(place, facts, { resize = false }, signal, again) {
  const fields = { image: chosen().blob, model: chosen().model, resize };
  const state = h("p", { class: "soft", role: "status", id: "state" }, "certifying…");
  show(place, h("div", { class: "panel" }, state));
  try {
    let certificate = null;
    for await (const { kind, data } of post("/v1/certify", { ...fields, n: SAMPLES }, signal)) if (kind === "moment") certificate = data;
    const radius = certificate.radius;
    const panel = slider(place, facts, certificate, state);
    state.textContent = "looking for the direction that hurts most…";
    for await (const { kind, data } of post("/v1/attack", { ...fields, radius: farthest(radius, facts), n: 500 }, signal)) {
      if (kind === "frame") { panel.add(data); state.textContent = "pushing…"; }
      if (kind === "end") { state.textContent = panel.verdict(); tell(state.textContent); }
    }
  } catch (problem) {
    if (signal.aborted) return;
    const size = /pixels|grey image/.test(problem.message) && !resize;
    show(place, error(problem.message, size ? h("div", { class: "row" }, h("button", { type: "button", onclick: () => again({ resize: true }) }, "Resize it and go on")) : null));
  }
}

function slider(place, facts, certificate, state) {
  const { radius } = certificate;
  const frames = [];
  const top = farthest(radius, facts);
  const input = h("input", { type: "range", class: "slider", id: "push", min: 0, max: top, step: top / 500, value: 0, "aria-label": "Size of the change", oninput: () => look(Number(input.value)) });
  const picture = h("img", { class: "pixel", alt: "The image after the push" });
  const votes = bars();
  const distance = h("strong", {}, "0.000"), answer = h("strong", { class: "go", id: "answer" }, "…"), where = h("p", {});
  const place2 = (value) => `${(100 * value) / top}%`;
  show(place, h("div", { class: "panel" }, state,
    h("div", { class: "answer" }, h("div", {}, h("span", {}, "answer"), answer), h("div", {}, h("span", {}, "size of the change"), distance), h("div", {}, h("span", {}, "certified radius"), h("strong", {}, down(radius)))),
    input,
    h("div", { class: "scale" }, h("span", { style: { left: "1%" } }, "0"), radius > 0 ? h("span", { class: "mark", style: { left: place2(radius) } }, "▲ radius") : null, h("span", { style: { left: "97%" } }, top.toFixed(2))),
    h("div", { class: "says" }, where),
    h("div", { class: "split" }, h("figure", {}, picture), h("div", {}, votes.element))));

  function look(wanted) {
    const at = frames.filter((frame) => frame.distance <= wanted + 1e-9).at(-1) ?? frames[0];
    if (!at) return;
    picture.src = at.picture;
    distance.textContent = at.distance.toFixed(3);
    answer.textContent = at.abstained ? "abstains" : at.class;
    answer.className = at.abstained || at.class === certificate.class ? "go" : "bad";
    votes.update(facts.classes, at.votes);
    const inside = at.distance < radius;
    show(where, certificate.abstained ? "This image has no certificate, so nothing is promised." : inside ? "Inside the certified radius: the answer cannot change." : at.class === certificate.class ? "Beyond the radius nothing is promised; here the answer still holds." : "Beyond the radius nothing is promised, and here the attack has won.");
    input.setAttribute("aria-valuetext", `${at.distance.toFixed(3)}: ${answer.textContent}`);
  }
  return {
    add(frame) { frames.push(frame); frames.sort((a, b) => a.distance - b.distance); look(Number(input.value)); },
    verdict() {
      const other = frames.find((frame) => !frame.abstained && frame.class !== certificate.class);
      if (!other) return "The attack found no other answer as far as it went. Push the slider.";
      return `The answer first changes at ${other.distance.toFixed(3)}, ${radius > 0 ? `${(other.distance / radius).toFixed(2)} times the certified radius` : "without a certificate"}. Push the slider.`;
    },
  };
}
