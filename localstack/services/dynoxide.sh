# A DynamoDB engine on SQLite, in memory: the crate dynoxide-rs, served by dynoxide/src/main.rs.
# shellcheck shell=bash disable=SC2034,SC2154 # names are those of lib.sh
port=${LEASEHOLD_DYNOXIDE_PORT:-8000}
inputs=(dynoxide/Cargo.toml dynoxide/Cargo.lock dynoxide/src/main.rs)

installed_by() { require cargo; }

install() {
  cargo install --locked --path "$here/dynoxide" --root "$home" --target-dir "$home/build" &&
    rm -rf "$home/build"
}

command=("$home/bin/leasehold-dynoxide" --listen "127.0.0.1:$port")

healthy() { http_get "$endpoint/" | grep -q '^healthy: dynamodb'; }
