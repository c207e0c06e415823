# LocalStack's gateway with DynamoDB and its streams, answered by dynoxide through our plugin.
# shellcheck shell=bash disable=SC2034,SC2154 # names are those of lib.sh
port=${LEASEHOLD_LOCALSTACK_PORT:-4566}
needs=(dynoxide)
inputs=(lock/localstack.txt plugin/pyproject.toml plugin/leasehold_localstack/{__init__,dynamodb,loopback}.py)

installed_by() { python_version; }

install() {
  python_install lock/localstack.txt &&
    "$home/bin/python" -m pip install --disable-pip-version-check --no-index --no-deps \
      --no-build-isolation "$here/plugin" &&
    # The catalogue of all services: at its first start it would take 4 s and 350 MB to build.
    env "${environment[@]}" "$home/bin/python" -c \
      'from localstack import config; config.dirs.mkdirs(); from localstack.aws import spec; spec.main()'
}

environment=(
  GATEWAY_LISTEN="127.0.0.1:$port"
  GATEWAY_SERVER=loopback
  SERVICES='dynamodb,dynamodbstreams'
  EAGER_SERVICE_LOADING=1
  PROVIDER_OVERRIDE_DYNAMODB=http
  PROVIDER_OVERRIDE_DYNAMODBSTREAMS=http
  DDB_BACKEND_URL="http://127.0.0.1:${LEASEHOLD_DYNOXIDE_PORT:-8000}"
  # Nothing is sent or fetched: no usage events, no certificate, no name server of its own.
  DISABLE_EVENTS=1
  SKIP_SSL_CERT_DOWNLOAD=1
  DNS_ADDRESS=0
  # All its files go here, also where it believes that it is in a container.
  OVERRIDE_IN_DOCKER=0
  FILESYSTEM_ROOT="$home/files"
  XDG_CACHE_HOME="$home/cache"
  LS_LOG=warning
)
command=("$home/bin/python" -m localstack.runtime.main)

# A call that goes all the way: its own health page is green before the engine can be reached.
healthy() {
  http_get "$endpoint/" --output /dev/null \
    -H 'content-type: application/x-amz-json-1.0' -H 'x-amz-target: DynamoDB_20120810.ListTables' \
    -H 'authorization: AWS4-HMAC-SHA256 Credential=up/20260101/us-east-1/dynamodb/aws4_request, SignedHeaders=host, Signature=0' \
    -H 'x-amz-date: 20260101T000000Z' --data '{}'
}
