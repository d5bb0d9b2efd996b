// Pictures as numbers: what the network sees, under noise, and at a distance. Only for the eye: the votes are
// counted on the server, under noise that nobody sees.

import { h } from "./dom.js";

export async function read(source) { // grid pixels in [0, 1], interleaved RGB
  const picture = new Image();
  picture.src = source;
  await picture.decode();
  const canvas = h("canvas", { width: picture.width, height: picture.height });
  const context = canvas.getContext("2d");
  context.drawImage(picture, 0, 0);
  const { data } = context.getImageData(0, 0, picture.width, picture.height);
  const values = new Float64Array((data.length / 4) * 3);
  for (let i = 0, k = 0; i < data.length; i += 4) for (let c = 0; c < 3; c++) values[k++] = data[i + c] / 255;
  return { width: picture.width, height: picture.height, values };
}

export function paint(canvas, { width, height, values }) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d");
  const image = context.createImageData(width, height);
  for (let i = 0, k = 0; i < image.data.length; i += 4) {
    for (let c = 0; c < 3; c++) image.data[i + c] = Math.round(255 * Math.max(0, Math.min(1, values[k++])));
    image.data[i + 3] = 255;
  }
  context.putImageData(image, 0, 0);
}

const normal = () => Math.sqrt(-2 * Math.log(1 - Math.random())) * Math.cos(2 * Math.PI * Math.random());
const LAWS = {
  uniform: () => (Math.random() - 0.5) * Math.sqrt(12),
  laplace: () => (Math.random() < 0.5 ? 1 : -1) * -Math.log(1 - Math.random()) / Math.SQRT2,
};

// One number per value that the network takes: of a grey image the three colours share it.
export function field({ values }, channels, law) {
  const draw = LAWS[law] ?? normal;
  const result = new Float64Array(values.length);
  for (let i = 0; i < values.length; i += 3) {
    if (channels === 1) result.fill(draw(), i, i + 3);
    else for (let c = 0; c < 3; c++) result[i + c] = draw();
  }
  return result;
}

export function direction(picture, channels, norm) { // of length 1
  const drawn = field(picture, channels, "normal");
  const share = channels === 1 ? 3 : 1;
  const length = norm === "l1" ? drawn.reduce((sum, v) => sum + Math.abs(v), 0) / share : Math.sqrt(drawn.reduce((sum, v) => sum + v * v, 0) / share);
  return drawn.map((value) => value / length);
}

export const moved = (picture, change, size) => ({ ...picture, values: picture.values.map((value, i) => value + size * change[i]) });
