// What programs can ask.

import { h, show } from "./dom.js";
import { get } from "./net.js";

export async function view(main, _, signal) {
  const description = await get("/openapi.json", signal);
  const rows = Object.entries(description.paths).flatMap(([path, methods]) => Object.entries(methods).map(([method, { summary }]) => [method.toUpperCase(), path, summary]));
  const address = location.origin;
  show(main, h("h1", {}, "API"), h("p", { class: "lead" }, "The same over HTTP. ", h("a", { href: "/openapi.json" }, "OpenAPI description"), ", ", h("a", { href: "/metrics" }, "metrics"), "."),
    h("pre", {}, [
      `curl -F image=@image.png ${address}/v1/certify`,
      `curl -F image=@image.png -F n=1000 ${address}/v1/predict`,
      `curl -N -H 'Accept: text/event-stream' -F image=@image.png ${address}/v1/certify`,
    ].join("\n")),
    h("div", { class: "wide" }, h("table", { class: "list" }, h("thead", {}, h("tr", {}, ["", "address", "what"].map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, rows.map(([method, path, summary]) => h("tr", {}, h("td", {}, method), h("td", {}, h("code", {}, path)), h("td", {}, summary)))))));
}
