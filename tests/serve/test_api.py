"""Certificates and predictions over HTTP, within limits, and bad input that the server survives."""

from __future__ import annotations

import base64
import json
import socket
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

from smoothheads.serve import Server

from .conftest import Client, form, picture, wait_until

IMAGE = picture()


def certified(client: Client, **fields: Any) -> dict[str, Any]:
    answer = client.form("/v1/certify", IMAGE, **fields)
    assert answer.status == 200, answer.body
    only: dict[str, Any] = answer.json()["answers"][0]
    return only


def test_certify_equals_the_library(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Served certificates are, from both sides, those that the library gives under the server's secret."""
    import smoothheads as sh
    from smoothheads.serve.images import png
    from smoothheads.serve.network import load_images
    from smoothheads.types import format_radius

    monkeypatch.setattr("smoothheads.serve.network.secrets.randbits", lambda _: 7)
    smoothed = sh.from_pretrained(run, seed=7)
    dataset = load_images(run)
    # An image that is certified, so that the radius says something.
    image, certificate = next(
        (image, certificate)
        for image in map(dataset.image, range(20))
        if (certificate := list(smoothed.stream(image, n=500))[-1]).radius > 0.05
    )
    with Server(run, port=0) as server:
        response = Client(server.url).form("/v1/certify", png(image, dataset.info.grid), n=500).json()
    served = response["answers"][0]
    assert (response["sigma"], response["alpha"]) == (smoothed.config.sigma, smoothed.config.alpha)
    assert (served["prediction"], served["k"], served["n"]) == (
        certificate.prediction,
        certificate.k,
        certificate.n,
    )
    assert served["radius"] == float(format_radius(certificate.radius))
    assert served["p_lower"] == certificate.p_lower
    assert sum(served["votes"]) == 500
    assert all(sum(votes) == 500 for votes in served["heads"].values())


def test_predict_same_image_in_all_encodings(client: Client) -> None:
    sent = base64.b64encode(IMAGE).decode()
    pixels = [[[0] * 8 for _ in range(8)]]
    pixels[0][2][2] = 13  # 200 of 255 on the grid of 16
    answers = [
        client.form("/v1/predict", IMAGE, n=200),
        client.json("/v1/predict", {"image": sent, "n": 200}),
        client.json("/v1/predict", {"images": [f"data:image/png;base64,{sent}"], "n": 200}),
        client.json("/v1/predict", {"pixels": pixels, "n": 200}),
    ]
    assert [answer.status for answer in answers] == [200] * 4
    assert len({json.dumps(answer.json()) for answer in answers}) == 1


def test_predict_batch_keeps_its_order(client: Client) -> None:
    other = picture("RGB")
    answers = client.form("/v1/predict", IMAGE, picture(size=(8, 8), mode="1"), other, n=100).json()[
        "answers"
    ]
    assert answers[0] == answers[2] != answers[1]


def test_certify_events_grow_and_end(client: Client) -> None:
    events = list(client.events("/v1/certify", IMAGE, n=1000))
    kinds = [kind for kind, _ in events if kind != "waiting"]
    assert kinds[0] == "facts" or kinds[0] == "start"
    assert kinds[-1] == "end"
    radii = [data["radius"] for kind, data in events if kind == "moment"]
    assert radii == sorted(radii)
    assert events[-1][1] == {"reason": "n"}
    last = [data for kind, data in events if kind == "moment"][-1]
    assert last["votes"] == certified(client, n=1000)["votes"]


def test_certify_stops_at_the_radius(client: Client) -> None:
    whole = certified(client, n=3000)
    if whole["radius"] > 0.02:
        assert certified(client, n=3000, radius=0.02)["n"] < 3000


def test_attack_distances_grow(client: Client) -> None:
    frames = [data for kind, data in client.events("/v1/attack", IMAGE, n=100, radius=0.5) if kind == "frame"]
    distances = [frame["distance"] for frame in frames]
    assert distances == sorted(set(distances))
    assert distances[0] == 0
    assert 0.3 < distances[-1] < 0.5


def test_dropped_stream_stops_the_work(client: Client) -> None:
    events = client.events("/v1/certify", IMAGE, n=20_000)
    next(kind for kind, _ in events if kind == "moment")
    events.close()  # type: ignore[attr-defined]

    def still() -> bool:
        before = client.metric("smoothheads_steps")
        time.sleep(0.5)
        return client.metric("smoothheads_steps") == before

    wait_until(still)
    assert client.metric("smoothheads_requests_active") == 0


def test_dropped_request_stops_the_work(server: Server, client: Client) -> None:
    parts = urlsplit(server.url)
    body, kind = form(IMAGE, n=20_000)
    with socket.create_connection((str(parts.hostname), parts.port or 0)) as raw:
        head = f"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: client.metric("smoothheads_requests_active") == 1)
    wait_until(lambda: client.metric("smoothheads_requests_active") == 0)


def test_full_queue_gives_429(client: Client) -> None:
    held = [client.events("/v1/certify", picture(kind="bmp"), n=20_000) for _ in range(4)]
    for events in held:
        next(iter(events))
    refused = client.form("/v1/predict", IMAGE, n=2000)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    assert client.form("/v1/predict", IMAGE, n=100).status == 200  # small ones have a place of their own
    for events in held:
        events.close()  # type: ignore[attr-defined]
    wait_until(lambda: client.form("/v1/predict", IMAGE, n=2000).status == 200)


def test_seconds_bound_a_batch(client: Client) -> None:
    """Each image has what holds when the time is over, or was not reached; a slow machine reaches none."""
    answers = client.form("/v1/certify", IMAGE, picture("1"), seconds=0.3).json()["answers"]
    reached = [answer.get("error") != "not reached in time" for answer in answers]
    assert reached == sorted(reached, reverse=True)
    assert all(answer["n"] > 0 for answer, there in zip(answers, reached, strict=True) if there)


def animated() -> bytes:
    from PIL import Image

    frame = [Image.new("L", (8, 8), shade) for shade in (0, 255)]
    return picture(kind="webp", save_all=True, append_images=frame)


def sideways() -> bytes:
    from PIL import Image

    exif = Image.Exif()
    exif[0x0112] = 6
    return picture("RGB", kind="jpeg", exif=exif)


BAD = {
    "not an image": (b"hello", "image 1"),
    "empty": (b"", "image 1"),
    "torn": (IMAGE[:-20], "image 1"),
    "large": (picture(size=(101, 101)), "at most 10,000"),
    "wrong size": (picture(size=(9, 8)), "images of 8x8 pixels, and image 1 has 9x8"),
    "animated": (animated(), "animated"),
    "16 bit": (picture("I;16"), "8-bit"),
    "print colours": (picture("CMYK", kind="jpeg"), "CMYK"),
    "rotated": (sideways(), "EXIF"),
    "colour": (picture("P", kind="png"), None),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_image_gives_422(client: Client, name: str) -> None:
    data, words = BAD[name]
    answer = client.form("/v1/predict", data, n=100)
    if words is None:
        assert answer.status in (200, 422)
        return
    assert answer.status == 422, answer.body
    assert words in answer.json()["error"]
    assert "Traceback" not in answer.body.decode()
    body, kind = form(data, n=100)
    streamed = client.request("POST", "/v1/certify", body, Content_Type=kind, Accept="text/event-stream")
    assert (streamed.status, words in streamed.json()["error"]) == (422, True)


def test_resize_must_be_allowed(client: Client) -> None:
    big = picture("RGB", size=(40, 30))
    refused = client.form("/v1/predict", big, n=100)
    assert (refused.status, refused.json()["resize"]) == (422, True)
    assert "resize" not in client.form("/v1/predict", picture("I;16"), n=100).json()
    assert client.form("/v1/predict", big, n=100, resize="true").status == 200
    assert client.form("/v1/predict", sideways(), n=100, resize="true").status == 200


BAD_JSON: dict[str, tuple[Any, str]] = {
    "NaN": ('{"pixels": [[[NaN]]]}', "1x1x1"),
    "NaN in the right shape": ({"pixels": [[[float("nan")] * 8] * 8]}, "whole numbers from 0 to 16"),
    "a half": ({"pixels": [[[0.5] * 8] * 8]}, "whole numbers from 0 to 16"),
    "off the grid": ({"pixels": [[[17] * 8] * 8]}, "whole numbers from 0 to 16"),
    "a number without end": (f'{{"pixels": [[[1{"0" * 400}]]]}}', "numbers"),
    "another shape": ({"pixels": [[[1] * 8] * 7]}, "1x7x8"),
    "ragged": ({"pixels": [[[1], [1, 2]]]}, "equal length"),
    "words": ({"pixels": "words"}, "pixels"),
    "no object": ([1], "object"),
    "no JSON": ("{", "JSON"),
    "deep": ("[" * 100_000, "JSON"),
    "no image": ({}, "no image"),
    "too many": ({"images": ["eHg="] * 5}, "at most 4"),
    "not base64": ({"image": "?"}, "base64"),
    "unknown field": ({"image": "x", "sigma": 1}, "no field 'sigma'"),
    "too large n": ({"image": "x", "n": 20_001}, "at most 20000"),
    "negative n": ({"image": "x", "n": -1}, "The field n"),
    "infinite n": ('{"image": "x", "n": 1e999}', "The field n"),
    "n without end": (f'{{"image": "x", "n": 1{"0" * 400}}}', "at most 20000"),
    "n that no machine holds": (f'{{"image": "x", "n": 1{"0" * 10_000}}}', "JSON"),
    "n as words": ({"image": "x", "n": "many"}, "The field n"),
    "seconds without end": ({"image": "x", "seconds": 10**400}, "seconds"),
    "a path as a model": ({"image": "eHg=", "model": "../../../etc"}, "no model"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_bad_json_gives_422(client: Client, name: str) -> None:
    value, words = BAD_JSON[name]
    body = value if isinstance(value, str) else json.dumps(value)
    answer = client.request("POST", "/v1/certify", body.encode(), Content_Type="application/json")
    assert answer.status == 422, answer.body
    assert words in answer.json()["error"]


def test_body_too_large_or_of_another_type(client: Client) -> None:
    assert client.form("/v1/predict", bytes(200_001)).status == 413
    assert client.request("POST", "/v1/predict", b"x", Content_Type="text/plain").status == 422
    assert client.get("/v1/predict").status == 405
    assert client.get("/nothing").status == 404
    assert client.form("/v1/predict", IMAGE, n=100).status == 200


def test_slow_body_gives_408(server: Server, client: Client) -> None:
    parts = urlsplit(server.url)
    with socket.create_connection((str(parts.hostname), parts.port or 0), timeout=15) as raw:
        raw.sendall(
            b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        assert raw.recv(1000).startswith(b"HTTP/1.1 408")
    assert client.form("/v1/predict", IMAGE, n=100).status == 200


def test_samples_of_the_data_set(client: Client) -> None:
    samples = client.get("/v1/samples").json()["samples"]
    assert {sample["label"] for sample in samples} == set(range(10))
    shown = client.get("/v1/sample", ("index", samples[0]["index"]))
    assert shown.headers["content-type"] == "image/png"
    assert client.form("/v1/predict", shown.body, n=100).status == 200
    assert client.get("/v1/sample", ("index", 10**6)).status == 404
    assert client.get("/v1/sample", ("index", "../x")).status == 422


def test_openapi_describes_answers_and_tokens(client: Client, run: Path) -> None:
    described = client.get("/openapi.json").json()
    assert {"/v1/certify", "/v1/predict", "/v1/attack", "/v1/runs", "/healthz"} <= set(described["paths"])
    fields = described["components"]["schemas"]["Certificate"]["properties"]
    assert set(certified(client, n=100)) <= set(fields)
    asked = described["paths"]["/v1/certify"]["post"]["requestBody"]["content"]
    assert set(asked) == {"application/json", "multipart/form-data"}
    assert "security" not in described["paths"]["/v1/certify"]["post"]
    with Server(run, port=0, token="a-token-of-some-length") as guarded:
        headers = {"Authorization": "Bearer a-token-of-some-length"}
        guarded_paths = Client(guarded.url, headers).get("/openapi.json").json()["paths"]
        assert guarded_paths["/v1/certify"]["post"]["security"] == [{"token": []}]


def test_metrics_count_requests_and_memory(client: Client) -> None:
    assert client.get("/healthz").body == b"ok\n"
    certified(client, n=100)
    text = client.get("/metrics").body.decode()
    assert 'smoothheads_requests_total{route="/v1/certify",status="200"}' in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.split(" ")) == 2
    assert client.metric("process_resident_memory_bytes") > 1e6


def test_noise_secret_belongs_to_the_server(run: Path, runs_folder: Path) -> None:
    """A network that was evicted and opened again gives the same votes; another server gives others."""
    from smoothheads.serve.network import Networks, ServedNetwork

    def votes(network: ServedNetwork) -> list[int]:
        image = np.full((1, 8, 8), 5, np.uint8)
        counts: list[int] = list(network.predict(image, n=400))[-1].data["votes"]
        return counts

    folders = {str(i): run for i in range(4)}
    networks, others = (Networks(lambda: folders, n=1000) for _ in range(2))
    first = networks.get("0")
    before = votes(first)
    for name in "123":
        networks.get(name)
    assert networks.get("0") is not first
    assert votes(networks.get("0")) == before
    secrets = {networks.seed, others.seed}
    assert len(secrets) == 2
    assert all(secret > 2**20 for secret in secrets)


def test_serving_leaves_the_folder_alone(client: Client, runs_folder: Path) -> None:
    def files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in runs_folder.rglob("*") if path.is_file()}

    before = files()
    certified(client, n=100)
    assert client.form("/v1/predict", IMAGE, n=100).status == 200
    for address in (
        "/v1/runs",
        "/v1/samples",
        "/v1/runs/curves.png",
        "/v1/runs/curves.csv",
        "/v1/runs/curves.tex",
    ):
        assert client.get(address, ("id", "some/ledger-fixed")).status == 200
    assert files() == before
