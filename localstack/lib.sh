# What up, down and status share. Sourced by them; not a program.
# shellcheck shell=bash disable=SC2154 # the words of a service are set by its file
#
# A service is one file, services/NAME.sh. `load NAME` reads it; it says
#
#   port             ${LEASEHOLD_NAME_PORT:-its default}
#   endpoint         what a client is given, if more than http://127.0.0.1:PORT
#   needs            the services that must run before it
#   inputs           the files that decide what is installed; if one changes, it is installed again
#   installed_by     prints the version of the tool that installs, which decides it too
#   install          fills the empty folder $home
#   environment      NAME=VALUE …; a service sees this and nothing else of the caller's environment
#   command          the program and its arguments; it must stay in the foreground
#   healthy          true when it answers; must itself be quick
#
# Below .tools/localstack, NAME is what is installed, and run/NAME what runs: pid, port, wanted, log,
# and `asked` if somebody named it and it is not only there because another service needs it.

((BASH_VERSINFO[0] >= 5)) || {
  echo "localstack: bash 5 or newer is needed, and this is $BASH_VERSION" >&2
  exit 1
}

here=$(cd -P "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
tools=$(dirname "$here")/.tools/localstack
python=${LEASEHOLD_PYTHON:-python3}
start_seconds=${LEASEHOLD_START_SECONDS:-60}
stop_seconds=10

say() { printf 'localstack: %s\n' "$*" >&2; }

# A path as seen from the checkout.
shown() { printf '%s' "${1#"$(dirname "$here")/"}"; }

die() {
  say "$@"
  exit 1
}

require() {
  local program
  for program in "$@"; do
    command -v "$program" >/dev/null || die "'$program' is needed and is not on the PATH; install it"
  done
}

# --- which services ---------------------------------------------------------------------------

all_services() {
  local file
  for file in "$here"/services/*.sh; do
    basename "$file" .sh
  done
}

check_names() {
  local given
  for given in "$@"; do
    [[ -f $here/services/$given.sh ]] ||
      die "there is no service '$given'; there are: $(all_services | paste -sd ' ')"
  done
}

# Sets the words listed at the top of this file for one service. Call it in a subshell.
load() {
  name=$1 home=$tools/$1 run=$tools/run/$1
  port_variable=${name^^}
  port_variable=LEASEHOLD_${port_variable//-/_}_PORT
  endpoint='' needs=() inputs=() environment=()
  # shellcheck source=/dev/null
  source "$here/services/$name.sh"
  if ! [[ $port =~ ^[1-9][0-9]{0,4}$ ]] || ((port > 65535)); then
    die "$port_variable is '$port', which is not a port; unset it or give a number"
  fi
  endpoint=${endpoint:-http://127.0.0.1:$port}
}

# The same, for one that may run on another port than the environment now says.
load_running() {
  load "$1"
  [[ ! -f $run/port ]] || { export "$port_variable=$(<"$run/port")" && load "$1"; }
}

# The given services and what they need, each once, what is needed first.
with_needs() {
  local given
  for given in "$@"; do
    (
      load "$given"
      if ((${#needs[@]})); then with_needs "${needs[@]}"; fi
    ) || exit 1
    echo "$given"
  done | awk '!seen[$0]++'
}

# The services whose `needs` name the given one.
needing() {
  local other
  for other in $(all_services); do
    (
      load "$other"
      if [[ " ${needs[*]} " == *" $1 "* ]]; then echo "$other"; fi
    )
  done
}

# --- one at a time ----------------------------------------------------------------------------

# Held until this script ends, however it ends. Descriptor 9 is closed for every program that is
# started here, or the lock would live as long as the service does.
lock() {
  [[ -r /proc/self/environ ]] ||
    die 'the native way needs Linux; elsewhere use Docker: localstack/up --docker'
  require flock
  mkdir -p "$tools/run"
  exec 9>"$tools/run/lock"
  flock -n 9 && return
  say 'another up or down is at work in this checkout; waiting for it'
  flock -w 900 9 || die 'it has not ended in 15 minutes; look for it with: ps -ef | grep localstack/'
}

# --- installing -------------------------------------------------------------------------------

fingerprint() {
  {
    installed_by
    declare -f install python_install
    (cd "$here" && sha256sum "${inputs[@]}")
  } | sha256sum | cut -d' ' -f1
}

# The stamp is written last, so a folder without the right one is half made or out of date, and is
# made again from nothing.
ensure_installed() {
  local want log=$run/install.log began=$SECONDS
  want=$(fingerprint) || exit 1
  [[ -f $home/stamp && $(<"$home/stamp") == "$want" ]] && return
  stop
  rm -rf "$home"
  mkdir -p "$home" "$run"
  say "$name: installing, once; log: $(shown "$log")"
  if ! install >"$log" 2>&1 </dev/null 9>&-; then
    tail -n 30 "$log" >&2
    die "$name: not installed; above is the end of $(shown "$log"). Once the cause is cured, run this again"
  fi
  echo "$want" >"$home/stamp"
  say "$name: installed in $((SECONDS - began)) s"
}

# LocalStack says that it runs on 3.10, and finds none of its own plugins there.
python_version() {
  require "$python"
  "$python" -c 'import sys; print(sys.version, sys.executable); sys.exit(sys.version_info < (3, 11))' ||
    die "$name needs Python 3.11 or newer, and $python is $("$python" --version 2>&1);" \
      "set LEASEHOLD_PYTHON to a newer one"
}

# A Python environment in $home that holds what the lock file lists and nothing else.
python_install() {
  "$python" -m venv "$home" &&
    "$home/bin/python" -m pip install --disable-pip-version-check --no-input --progress-bar off \
      --only-binary :all: --require-hashes -r "$here/$1"
}

# --- running ----------------------------------------------------------------------------------

# The processes of the loaded service: those that carry its mark in their environment. Only `start`
# sets it and children inherit it, so it holds where a number does not: numbers are used again, and
# a leader that was killed leaves children behind.
ours() {
  { grep -lzxF -- "LEASEHOLD_SERVICE=$run" /proc/[0-9]*/environ 2>/dev/null || true; } | cut -d/ -f3
}

# Prints the process that `start` started, if it still runs.
leader() {
  local pid
  [[ -f $run/pid ]] && pid=$(<"$run/pid") &&
    grep -qzxF -- "LEASEHOLD_SERVICE=$run" "/proc/$pid/environ" 2>/dev/null && echo "$pid"
}

port_taken() { (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; }

http_get() { curl --silent --fail --noproxy '*' --max-time 5 "$@"; }

# Tries `healthy` for so many seconds, and gives up early when the process is gone.
healthy_within() {
  local deadline=$((SECONDS + $1))
  until healthy; do
    leader >/dev/null || return 1
    ((SECONDS < deadline)) || return 1
    sleep 0.05
  done
  leader >/dev/null
}

# What a running service must have been started with, to be left alone.
wanted() {
  { cat "$home/stamp" && printf '%s\n' "${environment[@]}" "${command[@]}"; } | sha256sum
}

# Before anything is installed: what cannot succeed should fail in its first second.
check_port() {
  require curl setsid
  if leader >/dev/null; then
    local running
    running=$(<"$run/port")
    [[ $running == "$port" ]] ||
      die "$name already runs, on port $running, and is asked for on $port;" \
        "first: localstack/down $name (or unset $port_variable)"
  elif [[ -z $(ours) ]] && port_taken; then
    port_is_not_ours
  fi
}

port_is_not_ours() {
  die "$name: port $port of 127.0.0.1 is taken by a program that is not ours; end that program," \
    "or choose another port: $port_variable=$((port + 10000 < 65536 ? port + 10000 : port - 10000))"
}

ensure_running() {
  if leader >/dev/null; then
    if [[ $(<"$run/wanted") == "$(wanted)" ]] && healthy_within 5; then
      say "$name: already runs on port $port"
      return
    fi
    say "$name: runs, but does not answer or was started otherwise; starting it again"
  fi
  stop
  if port_taken; then port_is_not_ours; fi
  start
}

start() {
  local began=${EPOCHREALTIME/[.,]/}
  rm -rf "$run/tmp"
  mkdir -p "$run/home" "$run/tmp"
  echo "$port" >"$run/port"
  wanted >"$run/wanted"
  trap 'stop; exit 130' INT TERM
  (
    cd "$run" || exit
    # A session of its own: signals to the caller's terminal do not reach it, and it can be
    # signalled as a whole.
    exec setsid env -i PATH="$PATH" HOME="$run/home" TMPDIR="$run/tmp" LC_ALL=C.UTF-8 \
      LEASEHOLD_SERVICE="$run" "${environment[@]}" "${command[@]}" \
      </dev/null >"$run/log" 2>&1 9>&-
  ) &
  echo "$!" >"$run/pid"
  # Until the process has become the service it does not carry its mark.
  until leader >/dev/null; do
    kill -0 "$!" 2>/dev/null || break
    sleep 0.01
  done
  if ! healthy_within "$start_seconds"; then
    tail -n 40 "$run/log" >&2 || true
    stop
    die "$name: did not answer on port $port within $start_seconds s, or ended; above is the end of" \
      "$(shown "$run/log"). If it was only slow, raise LEASEHOLD_START_SECONDS"
  fi
  trap - INT TERM
  say "$name: answers on port $port after $(((${EPOCHREALTIME/[.,]/} - began) / 1000)) ms"
}

# Ends every process of the loaded service, politely and then not; true when none is left.
stop() {
  local deadline=$((SECONDS + stop_seconds)) pids
  mapfile -t pids < <(ours)
  # One that was suspended has to go on before it can end.
  if ((${#pids[@]})); then kill -TERM "${pids[@]}" && kill -CONT "${pids[@]}"; fi 2>/dev/null || true
  while mapfile -t pids < <(ours) && ((${#pids[@]})); do
    if ((SECONDS >= deadline)); then kill -KILL "${pids[@]}" 2>/dev/null || true; fi
    ((SECONDS < deadline + 5)) || die "$name: processes ${pids[*]} do not end; end them by hand"
    sleep 0.05
  done
  rm -rf "$run/pid" "$run/port" "$run/wanted" "$run/tmp"
}

# --- Docker -----------------------------------------------------------------------------------

compose() { docker compose --file "$here/compose.yaml" --project-name leasehold "$@"; }

require_docker() {
  if ! docker info >/dev/null 2>&1 || ! docker compose version >/dev/null 2>&1; then
    die "no Docker engine with 'docker compose' answers; start it, or leave out --docker and" \
      "LEASEHOLD_DOCKER to run natively"
  fi
}
