# docker build -t captionbench . && docker run --rm -v "$PWD/workspace:/home/bench/captionbench/workspace" captionbench
FROM python:3.12-slim
RUN pip install --no-cache-dir uv && useradd --create-home bench
USER bench
WORKDIR /home/bench/captionbench
COPY --chown=bench . .
RUN uv sync --no-dev --no-cache && mkdir -p workspace
ENV PATH="/home/bench/captionbench/.venv/bin:$PATH"
CMD ["sh", "-c", "bench run --models all && bench report"]
