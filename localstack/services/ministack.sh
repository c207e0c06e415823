# A second DynamoDB engine, written independently of the first.
# shellcheck shell=bash disable=SC2034,SC2154 # names are those of lib.sh
port=${LEASEHOLD_MINISTACK_PORT:-4567}
inputs=(lock/ministack.txt)

installed_by() { python_version; }

install() { python_install lock/ministack.txt; }

environment=(
  # Without it, every interface of the machine.
  BIND_HOST=127.0.0.1
  GATEWAY_PORT="$port"
  SERVICES='dynamodb,dynamodbstreams'
  LOG_LEVEL=WARNING
)
command=("$home/bin/python" -m ministack)

healthy() { http_get "$endpoint/_ministack/health" --output /dev/null; }
