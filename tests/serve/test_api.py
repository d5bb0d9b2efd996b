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

from .conftest import RUN, Client, form, picture, wait_until

IMAGE = picture()


def certified(client: Client, **fields: Any) -> dict[str, Any]:
    answer = client.form("/v1/certify", IMAGE, **fields)
    assert answer.status == 200, answer.body
    only: dict[str, Any] = answer.json()["answers"][0]
    return only


def test_a_certificate_is_what_the_votes_show(client: Client) -> None:
    from smoothheads.certify.bounds import p_lower_anytime
    from smoothheads.noise.l2 import l2_radius

    answer = client.form("/v1/certify", IMAGE, n=500)
    facts, only = answer.json(), answer.json()["answers"][0]
    assert only["n"] == 500
    assert sum(only["votes"]) == 500
    assert all(sum(votes) == 500 for votes in only["heads"].values())
    label = max(range(10), key=only["votes"].__getitem__)
    shown = p_lower_anytime(only["votes"][label], 500, facts["alpha"])
    assert only["radius"] >= l2_radius(shown, facts["sigma"]) - 1e-5  # the best so far
    assert only["prediction"] in (label, None)


def test_the_same_image_gets_the_same_answer_however_it_is_sent(client: Client) -> None:
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


def test_a_batch_keeps_its_order(client: Client) -> None:
    other = picture("RGB")
    answers = client.form("/v1/predict", IMAGE, picture(size=(8, 8), mode="1"), other, n=100).json()[
        "answers"
    ]
    assert answers[0] == answers[2] != answers[1]


def test_events_only_grow_and_end(client: Client) -> None:
    events = list(client.events("/v1/certify", IMAGE, n=1000))
    kinds = [kind for kind, _ in events if kind != "waiting"]
    assert kinds[0] == "facts" or kinds[0] == "start"
    assert kinds[-1] == "end"
    radii = [data["radius"] for kind, data in events if kind == "moment"]
    assert radii == sorted(radii)
    assert events[-1][1] == {"reason": "n"}
    last = [data for kind, data in events if kind == "moment"][-1]
    assert last["votes"] == certified(client, n=1000)["votes"]


def test_it_stops_at_the_radius(client: Client) -> None:
    whole = certified(client, n=3000)
    if whole["radius"] > 0.02:
        assert certified(client, n=3000, radius=0.02)["n"] < 3000


def test_the_attack_pushes_farther_and_farther(client: Client) -> None:
    frames = [data for kind, data in client.events("/v1/attack", IMAGE, n=100, radius=0.5) if kind == "frame"]
    distances = [frame["distance"] for frame in frames]
    assert distances == sorted(set(distances))
    assert distances[0] == 0
    assert 0.3 < distances[-1] < 0.5


def test_a_dropped_connection_stops_the_work(client: Client) -> None:
    events = client.events("/v1/certify", IMAGE, n=20_000)
    next(kind for kind, _ in events if kind == "moment")
    events.close()  # type: ignore[attr-defined]

    def still() -> bool:
        before = client.steps()
        time.sleep(0.5)
        return client.steps() == before

    wait_until(still)
    assert client.get("/metrics").body.count(b"smoothheads_requests_active 0") == 1


def test_a_client_that_is_killed_stops_its_work(server: Server, client: Client) -> None:
    parts = urlsplit(server.url)
    body, kind = form(IMAGE, n=20_000)
    with socket.create_connection((str(parts.hostname), parts.port or 0)) as raw:
        head = f"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        raw.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        wait_until(lambda: b"smoothheads_requests_active 1" in client.get("/metrics").body)
    wait_until(lambda: b"smoothheads_requests_active 0" in client.get("/metrics").body)


def test_too_many_at_once_are_refused_and_nobody_else(client: Client) -> None:
    held = [client.events("/v1/certify", picture(kind="bmp"), n=20_000) for _ in range(4)]
    for events in held:
        next(iter(events))
    refused = client.form("/v1/predict", IMAGE, n=100)
    assert refused.status == 429
    assert refused.headers["retry-after"] == "1"
    for events in held:
        events.close()  # type: ignore[attr-defined]
    wait_until(lambda: client.form("/v1/predict", IMAGE, n=100).status == 200)


def test_time_per_request(client: Client) -> None:
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
    "large": (picture(size=(101, 101)), "at most 10,000 pixels"),
    "wrong size": (picture(size=(9, 8)), "of 8x8 pixels, got 9x8"),
    "animated": (animated(), "animated"),
    "16 bit": (picture("I;16"), "8-bit"),
    "print colours": (picture("CMYK", kind="jpeg"), "CMYK"),
    "rotated": (sideways(), "EXIF"),
    "colour": (picture("P", kind="png"), None),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_gets_one_clear_message(client: Client, name: str) -> None:
    data, words = BAD[name]
    answer = client.form("/v1/predict", data, n=100)
    if words is None:
        assert answer.status in (200, 422)
        return
    assert answer.status == 422, answer.body
    assert words in answer.json()["error"]
    assert "Traceback" not in answer.body.decode()
    kind, told = list(client.events("/v1/certify", data, n=100))[-1]
    assert (kind, words in told["error"]) == ("error", True)


def test_resizing_must_be_allowed(client: Client) -> None:
    big = picture("RGB", size=(40, 30))
    assert client.form("/v1/predict", big, n=100).status == 422
    assert client.form("/v1/predict", big, n=100, resize="true").status == 200
    assert client.form("/v1/predict", sideways(), n=100, resize="true").status == 200


BAD_JSON: dict[str, tuple[Any, str]] = {
    "NaN": ('{"pixels": [[[NaN]]]}', "NaN"),
    "a half": ({"pixels": [[[0.5] * 8] * 8]}, "whole numbers from 0 to 16"),
    "off the grid": ({"pixels": [[[17] * 8] * 8]}, "whole numbers from 0 to 16"),
    "another shape": ({"pixels": [[[1] * 8] * 7]}, "1x7x8"),
    "ragged": ({"pixels": [[[1], [1, 2]]]}, "ragged"),
    "words": ({"pixels": "words"}, "numbers"),
    "no object": ([1], "object"),
    "no JSON": ("{", "JSON"),
    "deep": ("[" * 100_000, "JSON"),
    "no image": ({}, "at least one image"),
    "too many": ({"images": ["x"] * 5}, "at most 4 images"),
    "not base64": ({"image": "?"}, "base64"),
    "unknown field": ({"image": "x", "sigma": 1}, "known field"),
    "too large n": ({"image": "x", "n": 20_001}, "n <= 20000"),
    "negative n": ({"image": "x", "n": -1}, "0 < n"),
    "infinite n": ({"image": "x", "n": 1e999}, "0 < n"),
    "n as words": ({"image": "x", "n": "many"}, "0 < n"),
    "a path as a model": ({"image": "x", "model": "../../../etc"}, "known model"),
}


@pytest.mark.parametrize("name", BAD_JSON)
def test_a_bad_request_gets_one_clear_message(client: Client, name: str) -> None:
    value, words = BAD_JSON[name]
    body = value if isinstance(value, str) else json.dumps(value).replace("Infinity", "1e999")
    answer = client.request("POST", "/v1/certify", body.encode(), Content_Type="application/json")
    assert answer.status == 422, answer.body
    assert words in answer.json()["error"]


def test_too_large_a_body_and_other_kinds(client: Client) -> None:
    assert client.form("/v1/predict", bytes(200_001)).status == 413
    assert client.request("POST", "/v1/predict", b"x", Content_Type="text/plain").status == 422
    assert client.get("/v1/predict").status == 405
    assert client.get("/nothing").status == 404
    assert client.form("/v1/predict", IMAGE, n=100).status == 200


def test_a_slow_sender_is_cut_off(server: Server, client: Client) -> None:
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


def test_the_description_names_every_route(client: Client, server: Server, runs_folder: Path) -> None:
    from smoothheads.serve import Limits
    from smoothheads.serve.app import application
    from smoothheads.serve.guard import Access, Guard
    from smoothheads.serve.network import Settings

    guard = application(runs_folder, Settings(), Access(hosts=frozenset()), Limits())
    assert isinstance(guard, Guard)
    routes = {route.path for route in guard.app.routes if "." not in route.path[-5:]}  # type: ignore[attr-defined]
    described = client.get("/openapi.json").json()
    assert routes - {"/", "/login"} <= set(described["paths"])
    properties = described["components"]["schemas"]["Certified"]["properties"]["answers"]["items"][
        "properties"
    ]
    assert set(certified(client, n=100)) <= set(properties)


def test_machines_can_watch_it(client: Client) -> None:
    assert client.get("/healthz").body == b"ok\n"
    certified(client, n=100)
    text = client.get("/metrics").body.decode()
    assert 'smoothheads_requests_total{route="/v1/certify",status="200"}' in text
    for line in text.splitlines():
        assert line.startswith("#") or len(line.split(" ")) == 2
    assert float(text.split("\nsmoothheads_resident_bytes ")[1].split()[0]) > 1e6


def test_every_server_has_a_secret_of_its_own() -> None:
    """Which the classifier draws, as it does for everybody who names no seed."""
    from smoothheads.certify.certifier import content_key
    from smoothheads.serve.network import Settings, open_network

    image = np.zeros((1, 8, 8), np.uint8)
    keys = {content_key(image)}
    for folder in (RUN, RUN.parent / "export"):
        keys |= {open_network(folder, Settings())._smoothed._key(image, None) for _ in range(2)}
    assert len(keys) == 5


def test_serving_writes_nothing_into_the_folder(client: Client, runs_folder: Path) -> None:
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
