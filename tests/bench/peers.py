"""Other systems that stand where the sidecar stands, started as a user would start them. None of them looks at what it
carries. ``make bench-peers`` installs them from the package index into an environment of their own; one whose program
is not there is left out, and the table says so. LiteLLM, the widely used one in Python, is not among them: version
1.108 does not get 64 streams of 256 tokens done within the minute that a run may take on two busy cores.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.bench.proxies import Proxy, free_ports

Peer = Callable[[Path, str, Path], Proxy]
"""Of a folder for its files, the engine's URL, and its program."""


def installed(programs: Path) -> tuple[dict[str, Peer], list[str]]:
    """Those whose program is in the folder, and the names of those whose is not."""
    there = {name: peer for name, peer in PEERS.items() if (programs / name).exists()}
    return there, [name for name in PEERS if name not in there]


def vllm_router(folder: Path, url: str, program: Path) -> Proxy:
    """The router of the vLLM project (Rust)."""
    port, metrics = free_ports(2)
    command = [str(program), "--host", "127.0.0.1", "--port", str(port), "--worker-urls", url]
    return Proxy([*command, "--prometheus-port", str(metrics)], folder / "vllm-router.log", port=port)


def smg(folder: Path, url: str, program: Path) -> Proxy:
    """The gateway that grew out of the SGLang router (Rust). It serves the one model that its engine names first."""
    port, metrics = free_ports(2)
    command = [str(program), "launch", "--host", "127.0.0.1", "--port", str(port), "--worker-urls", url]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(metrics), "--log-level", "error"]
    return Proxy(command, folder / "smg.log", port=port, health="/readiness")


def envoy(folder: Path, url: str, program: Path) -> Proxy:
    """A general proxy (C++), as plain as it can be configured: one listener, one route, one cluster."""
    (port,) = free_ports(1)
    config = folder / "envoy.yaml"
    config.write_text(ENVOY.format(port=port, engine=url.rpartition(":")[2], manager=MANAGER))
    command = [str(program), "-c", str(config), "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"]
    return Proxy(command, folder / "envoy.log", port=port)


ONE_MODEL = {"smg": "s10"}
"""Those that can carry the scenarios of one model only."""
PEERS: dict[str, Peer] = {"vllm-router": vllm_router, "smg": smg, "envoy": envoy}

MANAGER = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ENVOY = """\
static_resources:
  listeners:
    - name: in
      address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": {manager}
                stat_prefix: in
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{{match: {{prefix: /}}, route: {{cluster: engine, timeout: 0s}}}}]
  clusters:
    - name: engine
      type: STATIC
      circuit_breakers: {{thresholds: [{{max_connections: 4096, max_pending_requests: 4096, max_requests: 4096}}]}}
      load_assignment:
        cluster_name: engine
        endpoints:
          - lb_endpoints:
              - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {engine}}}}}}}
"""
