# smoothheads serve on a processor, as a user without rights.
#
#   docker build -t smoothheads .
#   docker run -p 127.0.0.1:8000:8000 -e SMOOTHHEADS_TOKEN -v ./runs:/runs:ro smoothheads
FROM python:3.12-slim

RUN useradd --create-home --uid 10001 smoothheads
WORKDIR /opt/smoothheads
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src ./src
COPY zoo ./zoo
# The CPU build of torch; everything else as pinned.
RUN pip install --no-cache-dir -c constraints.txt --extra-index-url https://download.pytorch.org/whl/cpu \
    '.[serve,openvino,onnx]'

USER smoothheads
ENV PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
EXPOSE 8000
VOLUME /runs
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
# Others reach it, so it asks for a token: SMOOTHHEADS_TOKEN, 16 characters or more.
ENTRYPOINT ["smoothheads", "serve"]
CMD ["/runs", "--host", "0.0.0.0", "--port", "8000"]
