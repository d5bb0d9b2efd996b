// Where an image comes from: a file, the clipboard, a test image of the data set, or the mouse.

import { error, h, show } from "./dom.js";
import { get, query } from "./net.js";

// What was chosen, for all views. `certificate` is the last one of this image by this model: Attack shows the
// same radius as Classify.
const choice = { model: null, blob: null, name: "", label: null, certificate: null };

export const chosen = () => choice;
export const choose = (change) => Object.assign(choice, { certificate: null, label: null, ...change });

export async function models(signal) {
  const { models: names, default: first, descriptions, limits } = await get("/v1/models", signal);
  if (!names.includes(choice.model)) choose({ model: first, blob: null });
  return { names, descriptions, limits };
}

// Chooses the first test image, so that a visitor sees something at once.
export async function firstSample(signal) {
  const { samples } = await get(`/v1/samples?${query({ model: choice.model })}`, signal).catch(() => ({ samples: [] }));
  if (samples.length && !choice.blob) await takeSample(samples[0], signal).catch(() => {});
}

const sampleName = ({ index, class: label }) => `test image ${index}, ${label}`;

async function takeSample(sample, signal) {
  const answer = await fetch(`/v1/sample?${query({ model: choice.model, index: sample.index })}`, { signal });
  if (answer.ok) choose({ blob: await answer.blob(), name: sampleName(sample), label: sample.class });
}

// Calls onImage() whenever an image was chosen, onModel() when another classifier was.
export async function chooser({ names, descriptions, facts, onImage, onModel, signal }) {
  const note = h("div", {});
  const [channels, height, width] = facts.shape;
  const samples = h("div", { class: "samples", role: "group", "aria-label": "Test images" }, h("p", { class: "soft" }, "loading…"));
  const mark = () => { for (const button of samples.querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.title === choice.name)); };
  const take = (blob, name) => { choose({ blob, name }); show(note); mark(); onImage(); };

  const input = h("input", { type: "file", accept: "image/*", class: "unseen", id: "file", onchange: () => input.files[0] && take(input.files[0], input.files[0].name) });
  const drop = h("div", { class: "drop" }, h("p", {}, "Drop or paste an image"), h("button", { type: "button", onclick: () => input.click() }, "Choose a file"), h("label", { for: "file", class: "unseen" }, "Image file"), input);
  for (const name of ["dragenter", "dragover"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.add("over"); });
  for (const name of ["dragleave", "drop"]) drop.addEventListener(name, (event) => { event.preventDefault(); drop.classList.remove("over"); });
  drop.addEventListener("drop", (event) => {
    const file = event.dataTransfer.files[0];
    if (file) take(file, file.name);
    else show(note, error("That was not a file. Drop an image file."));
  });
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])][0];
    if (file) take(file, "pasted");
  }, { signal });

  const select = names.length > 1 ? h("label", { class: "row" }, "Classifier ", h("select", { onchange: (event) => { choose({ model: event.target.value, blob: null }); onModel(); } }, names.map((name) => h("option", { value: name, selected: name === choice.model }, descriptions[name] ? `${name} (${descriptions[name]})` : name)))) : null;
  const parts = [select, h("div", { class: "panel" }, drop, note, h("p", { class: "soft" }, `The network${descriptions[choice.model] ? ` (${descriptions[choice.model]})` : ""} takes ${width}×${height} ${channels === 1 ? "grey" : "colour"} images.`))];
  parts.push(h("div", { class: "panel" }, h("h3", {}, "Test images"), samples));
  if (channels === 1) parts.push(sketch({ width, height, take }));
  fillSamples(samples, () => { show(note); mark(); onImage(); }, signal).then(mark);
  return h("div", {}, parts);
}

async function fillSamples(place, onImage, signal) {
  const { model } = choice;
  const { samples, reason } = await get(`/v1/samples?${query({ model })}`, signal).catch(() => ({ samples: [], reason: "" }));
  if (!samples.length) { show(place, h("p", { class: "soft" }, reason ? "The data set is not on this machine." : "None.")); return; }
  show(place, samples.map((sample) => {
    const name = sampleName(sample);
    const picture = h("img", { class: "pixel", src: `/v1/sample?${query({ model, index: sample.index })}`, alt: "" });
    return h("button", { type: "button", title: name, "aria-label": name, onclick: async () => { await takeSample(sample, signal); onImage(); } }, picture);
  }));
}

function sketch({ width, height, take }) {
  const scale = 16;
  const canvas = h("canvas", { class: "sketch", width: width * scale, height: height * scale, "aria-label": "Draw here with the mouse or a finger" });
  const context = canvas.getContext("2d");
  const clear = () => { context.fillStyle = "#000"; context.fillRect(0, 0, canvas.width, canvas.height); };
  clear();
  let last = null;
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * canvas.width, ((event.clientY - box.top) / box.height) * canvas.height];
  };
  const line = (from, to) => {
    Object.assign(context, { strokeStyle: "#fff", lineWidth: canvas.width / 7, lineCap: "round", lineJoin: "round" });
    context.beginPath();
    context.moveTo(...from);
    context.lineTo(...to);
    context.stroke();
  };
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); last = place(event); line(last, last); });
  canvas.addEventListener("pointermove", (event) => { if (last) { const next = place(event); line(last, next); last = next; } });
  canvas.addEventListener("pointerup", () => {
    last = null;
    const small = h("canvas", { width, height });
    const target = small.getContext("2d");
    target.imageSmoothingQuality = "high";
    target.drawImage(canvas, 0, 0, width, height);
    small.toBlob((blob) => take(blob, "your drawing"), "image/png");
  });
  return h("div", { class: "panel" }, h("h3", {}, "Or draw one"), canvas, h("div", { class: "row" }, h("button", { type: "button", onclick: clear }, "Clear")));
}
