// Requests to this server, and nothing else.

export class Refused extends Error {
  constructor(text, resize = false) { super(text); this.resize = resize; } // resize: whether that would help
}

async function checked(response) {
  if (response.ok) return response;
  let text = `${response.status} ${response.statusText}`;
  let resize = false;
  try { ({ error: text = text, resize = false } = await response.json()); } catch { /* no JSON: the status will do */ }
  if (response.status === 429) text = "The server has too much to do just now. Try again in a moment.";
  throw new Refused(text, resize);
}

export async function get(path, signal) {
  const response = await checked(await fetch(path, { signal, cache: "no-cache" }));
  return response.json();
}

// News of a certificate or an attack while they arrive: for await (const { kind, data } of post(...)).
// Leaving the loop closes the connection, and that stops the work.
export async function* post(path, fields, signal) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields)) {
    if (value !== undefined && value !== null && value !== "") body.append(name, value);
  }
  const response = await checked(await fetch(path, { method: "POST", body, signal, headers: { Accept: "text/event-stream" } }));
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      rest += value;
      const parts = rest.split("\n\n");
      rest = parts.pop();
      for (const part of parts) {
        const lines = Object.fromEntries(part.split("\n").map((line) => [line.slice(0, line.indexOf(":")), line.slice(line.indexOf(":") + 1).trim()]));
        const data = JSON.parse(lines.data);
        if (lines.event === "error") throw new Refused(data.error);
        yield { kind: lines.event, data };
      }
    }
  } finally {
    await reader.cancel().catch(() => {});
  }
}

export const query = (values) => {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) for (const each of [value].flat()) if (each !== undefined && each !== null) search.append(name, each);
  return search.toString();
};
