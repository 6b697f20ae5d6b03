"""The gateway that comes with the Python package; it chooses its port and we say it."""

import sys
import time

import tensorzero

gateway = tensorzero._start_http_gateway(
    config_file=sys.argv[1], clickhouse_url=None, postgres_url=None, valkey_url=None, async_setup=False
)
print(f"listening: {gateway.base_url}", flush=True)
while True:
    time.sleep(3600)
