# Azure Blob Storage, in memory.
# shellcheck shell=bash disable=SC2034,SC2154 # names are those of lib.sh

# A second Azurite, with TLS and bearer tokens, is a file azurite-tls.sh beside this one: it sources
# this file, sets home=$tools/azurite, and gives another port, and --cert, --key and --oauth basic.
port=${LEASEHOLD_AZURITE_PORT:-10000}
endpoint=http://127.0.0.1:$port/devstoreaccount1
inputs=(azurite/package.json azurite/package-lock.json)

installed_by() {
  require node npm
  node --version
}

install() {
  cp "$here"/azurite/package*.json "$home" &&
    npm ci --prefix "$home" --ignore-scripts --no-audit --no-fund
}

# The combined program, because `azurite-blob` ignores --blobKeepAliveTimeout, and its 5 s cut a
# pooled connection between two renewals. Its queue and table get whatever port is free.
command=(
  node "$home/node_modules/azurite/dist/src/azurite.js"
  --inMemoryPersistence --silent --disableTelemetry --skipApiVersionCheck
  --blobHost 127.0.0.1 --blobPort "$port" --blobKeepAliveTimeout 120
  --queueHost 127.0.0.1 --queuePort 0 --tableHost 127.0.0.1 --tablePort 0
)

# Without a signature it answers 403, but it answers, and says who it is.
healthy() {
  curl --silent --noproxy '*' --max-time 5 --head "$endpoint?comp=list" | grep -qi '^server: azurite-blob'
}
