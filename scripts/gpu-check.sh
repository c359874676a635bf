#!/bin/sh
# Everything that a machine with an NVIDIA GPU can tell about steptrain, without network:
#   scripts/gpu-check.sh                 all parts, one after the other
#   scripts/gpu-check.sh ops models      some of them; each is useful alone and meant to end within ten minutes
#   scripts/gpu-check.sh --pack FILE     the tree that such a machine needs, as FILE (.tar.xz); unpack and run there
# Parts: smoke ops models quickstart sanitizer-{memcheck,racecheck,initcheck,synccheck}
# bench-{gemm,attention,head,step}.
# Node is taken from ./node-runtime/bin (as --pack puts it there), else from PATH; the addon that came along is
# rebuilt only where it does not load. The rival of the benches is the PyTorch of STEPTRAIN_PYTHON or python3.
# Results: bench/results/gpu-check-<GPU>-<date>.json, added to part by part; logs beside it. Exits with 1 where a part
# failed, after running the others.
set -u
cd "$(dirname "$0")/.." || exit 1
PARTS="smoke ops models quickstart
 sanitizer-memcheck sanitizer-racecheck sanitizer-initcheck sanitizer-synccheck
 bench-gemm bench-attention bench-head bench-step"

pack() {
  stage=$(mktemp -d)
  mkdir -p "$stage/steptrain/node-runtime/bin" "$stage/steptrain/build/Release" "$stage/steptrain/build/ts"
  for item in package.json tsconfig.json tsconfig.build.json tsconfig.bench.json vitest.config.ts CMakeLists.txt \
    assets binding core cpu cuda src dist recipes test bench examples scripts; do
    [ -e "$item" ] && cp -R "$item" "$stage/steptrain/"
  done
  cp build/Release/steptrain.node "$stage/steptrain/build/Release/"
  [ -d build/ts ] && cp -R build/ts/. "$stage/steptrain/build/ts/"
  strip --strip-unneeded "$stage/steptrain/build/Release/steptrain.node"
  # Modules that only write code stay behind.
  cp -RL node_modules "$stage/steptrain/"
  (cd "$stage/steptrain/node_modules" && rm -rf @biomejs typescript .cache .vite prebuildify)
  cp "$(command -v node)" "$stage/steptrain/node-runtime/bin/node"
  strip "$stage/steptrain/node-runtime/bin/node"
  tar -C "$stage" -c steptrain | xz -T0 -6 > "$1"
  rm -rf "$stage"
  ls -l "$1"
}

if [ "${1:-}" = "--pack" ]; then
  [ -n "${2:-}" ] || { echo "gpu-check: --pack needs a file name" >&2; exit 1; }
  pack "$2"
  exit
fi
for part in "$@"; do
  case " $(echo $PARTS) " in *" $part "*) ;; *)
    echo "gpu-check: no part '$part'; there are:" $PARTS >&2
    exit 1
    ;;
  esac
done

[ -x node-runtime/bin/node ] && PATH="$PWD/node-runtime/bin:$PATH"
export PATH
command -v node > /dev/null || { echo "gpu-check: no node on PATH" >&2; exit 1; }
if ! node -e 'require("./build/Release/steptrain.node")' 2> /dev/null; then
  echo "gpu-check: the addon does not load here; building it" >&2
  node scripts/build.mjs --bench || exit 1
fi
node -e 'process.exit((require("./build/Release/steptrain.node").cudaDevices() ?? []).length > 0 ? 0 : 1)' || {
  echo "gpu-check: steptrain sees no GPU here" >&2
  exit 1
}

logs=bench/results/gpu-check-logs
mkdir -p "$logs"
clocks() {
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu \
    --format=csv,noheader 2> /dev/null || echo unknown
}
tests() { # name, then vitest's arguments
  name=$1
  shift
  node node_modules/vitest/vitest.mjs run --reporter=default --reporter=json --outputFile.json="$logs/$name.json" "$@"
}
bench() {
  node build/ts/bench/main.js "$1" --device cuda --pairs 3 --seconds 0.3 --json "$logs/bench-$1.json"
}
run_part() {
  case $1 in
    smoke) node scripts/gpu-smoke.mjs > "$logs/smoke.json" ;;
    ops) tests ops test/ops test/cuda -t cuda ;;
    models) STEPTRAIN_TEST_DEVICE=cuda:0 tests models test/models test/autograd test/objectives ;;
    quickstart)
      rm -rf "$logs/quickstart-cuda" "$logs/quickstart-cpu"
      for device in cpu cuda; do
        node dist/cli/main.js run quickstart --output "$logs/quickstart-$device" --set run.device=$device || return 1
      done
      ;;
    sanitizer-*)
      command -v compute-sanitizer > /dev/null || { echo "no compute-sanitizer on PATH"; return 1; }
      compute-sanitizer --tool "${1#sanitizer-}" --target-processes all --error-exitcode 9 \
        node node_modules/vitest/vitest.mjs run test/ops test/cuda -t cuda --testTimeout 600000
      ;;
    bench-*) bench "${1#bench-}" ;;
  esac
}

failed=0
for part in ${@:-$PARTS}; do
  echo "== $part"
  before=$(clocks)
  began=$(date +%s)
  run_part "$part" > "$logs/$part.log" 2>&1
  rc=$?
  [ $rc -eq 0 ] || { failed=1; tail -n 20 "$logs/$part.log"; }
  node scripts/gpu-check-report.mjs "$logs" "$part" "$rc" "$(($(date +%s) - began))" "$before" "$(clocks)"
done
exit $failed
