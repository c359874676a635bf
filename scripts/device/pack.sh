#!/bin/bash
# Packs what a machine with an H100 needs beside the tracked files to run scripts/device/run.sh: Node, the addon for sm_90a
# and every instruction set of the CPU, dist, build/ts, and the packages that the program and its tests need.
#   scripts/device/pack.sh FILE [--addon ADDON] [--every-lane ADDON] [--wheel WHEEL …]
# FILE is a .tar.xz of several streams, of 40 MiB at most: run.sh --pack FILE unpacks it. What changed is built and
# compressed again, the rest taken from build/device. ADDON, such as the emulator's, takes the place of the built one, and of
# the one in which every lane arrives at barriers (every-lane.mjs); without the latter a pack with --addon has none.
# Wheels of pure Python, such as that of liger-kernel, give run.sh more rivals.
set -euo pipefail
LIMIT=$((40 << 20))
complain() {
  echo "pack.sh: $*" >&2
  exit 1
}
file=${1:-}
[[ -n $file && $file != -* ]] || complain "name the file to write: scripts/device/pack.sh FILE"
shift
file=$(realpath -m "$file")
addon= every_lane= wheels=()
while (($#)); do
  [[ -f ${2:-} ]] || complain "$1: there is no file '${2:-}'"
  case $1 in
    --addon) addon=$(realpath "$2") ;;
    --every-lane) every_lane=$(realpath "$2") ;;
    --wheel) wheels+=("$(realpath "$2")") ;;
    *) complain "no option '$1'; expected --addon, --every-lane or --wheel" ;;
  esac
  shift 2
done
cd "$(dirname "$0")/../.."
parts=$PWD/build/device
mkdir -p "$parts"

if [[ -n $addon ]]; then
  node scripts/build.mjs --no-addon --bench
else
  STEPTRAIN_CUDA=1 STEPTRAIN_CUDA_ARCHS=90a node scripts/build.mjs --all --bench
  addon=build/Release/steptrain.node
  every_lane=build/device/every-lane.node
  node scripts/device/every-lane.mjs $every_lane
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
# Compresses what is staged in "$stage/$1" into "$parts/$1.tar.xz". Code for the processor shrinks by a filter of its own.
compress() {
  chmod -R u+w "$stage/$1"
  tar -C "$stage/$1" --sort=name --owner=0 --group=0 --mtime=2000-01-01 -c . |
    xz -T1 --x86 --lzma2=preset="$2",dict=64MiB > "$parts/$1.part"
  mv "$parts/$1.part" "$parts/$1.tar.xz"
}

# The packages of `dependencies`, vitest and fast-check, with all that they need in turn.
packages() {
  node --input-type=module - <<'JS'
import { readFileSync } from 'node:fs';
const json = (path) => JSON.parse(readFileSync(path, 'utf8'));
const { packages } = json('node_modules/.package-lock.json');
const taken = new Set();
function take(name, from) {
  // As Node looks for it: beside the package that asks, then further up.
  for (let at = from; ; at = at.slice(0, Math.max(0, at.lastIndexOf('/node_modules/')))) {
    const path = `${at && `${at}/`}node_modules/${name}`;
    if (packages[path]) {
      if (taken.has(path) || name.startsWith('lightningcss')) return;
      taken.add(path);
      const { dependencies, optionalDependencies } = packages[path];
      for (const needed of Object.keys({ ...dependencies, ...optionalDependencies })) take(needed, path);
      return;
    }
    if (!at) return; // an optional one, for another system
  }
}
for (const name of [...Object.keys(json('package.json').dependencies), 'vitest', 'fast-check']) take(name, '');
// A package inside another comes with it.
const within = (path) => [...taken].some((other) => path.startsWith(`${other}/`));
for (const path of taken) if (!within(path)) console.log(path);
JS
}

runtime() {
  mkdir -p "$stage/runtime/build/node/bin"
  cp "$(node -p process.execPath)" "$stage/runtime/build/node/bin/node"
  strip "$stage/runtime/build/node/bin/node"
  packages | while read -r path; do
    mkdir -p "$stage/runtime/$(dirname "$path")"
    cp -RL "$path" "$stage/runtime/$path"
  done
  # What only an editor, a debugger or a reader opens.
  find "$stage/runtime/node_modules" -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' \
    -o -name '*.md' \) -delete
  # Vite asks only whether it is there.
  mkdir "$stage/runtime/node_modules/lightningcss"
  echo '{"name":"lightningcss","version":"1.0.0","main":"index.js"}' > "$stage/runtime/node_modules/lightningcss/package.json"
  touch "$stage/runtime/node_modules/lightningcss/index.js"
}
runtime
key=$(cd "$stage/runtime" && find . -type f -print0 | sort -z | xargs -0 cksum | cksum)
if [[ ! -f $parts/runtime.tar.xz || $(cat "$parts/runtime.key" 2> /dev/null) != "$key" ]]; then
  compress runtime 9
  echo "$key" > "$parts/runtime.key"
fi

mkdir -p "$stage/program/build/Release" "$stage/program/build/wheels"
for wheel in "${wheels[@]}"; do cp "$wheel" "$stage/program/build/wheels/"; done
cp -R dist "$stage/program/dist"
cp -R build/ts "$stage/program/build/ts"
find "$stage/program" -type f \( -name '*.map' -o -name '*.d.ts' -o -name '*.tsbuildinfo' \) -delete
cp "$addon" "$stage/program/build/Release/steptrain.node"
strip --strip-unneeded "$stage/program/build/Release/steptrain.node"
# Beside the other in the stream: what they have in common, nearly all, is compressed once.
if [[ -n $every_lane ]]; then
  cp "$every_lane" "$stage/program/build/Release/steptrain-every-lane.node"
  strip --strip-unneeded "$stage/program/build/Release/steptrain-every-lane.node"
fi
node -p 'JSON.stringify({ commit: process.argv[1], packed: new Date().toISOString(), nvcc: process.argv[2] || undefined })' \
  "$(git rev-parse --short HEAD 2> /dev/null)$(git diff --quiet HEAD 2> /dev/null || echo ' with changes')" \
  "$({ nvcc --version 2> /dev/null || true; } | sed -n 's/.*, V//p')" > "$stage/program/build/pack.json"
compress program 6

cat "$parts/runtime.tar.xz" "$parts/program.tar.xz" > "$file.part"
bytes=$(stat -c %s "$file.part")
if ((bytes > LIMIT)); then
  rm "$file.part"
  complain "the pack would be of $((bytes >> 20)) MiB, more than $((LIMIT >> 20))"
fi
mv "$file.part" "$file"
echo "$file: $((bytes / 1048576)).$((bytes % 1048576 * 10 / 1048576)) MiB"
