#!/bin/sh
# Packs what gpu-check.sh needs on a machine without network:
#   scripts/gpu-check.sh --pack FILE [--data PATH…]
# FILE is a .tar.xz with one folder, steptrain: sources, compiled TypeScript, tests, modules, a stripped Node, and the
# addon for CPU and CUDA as `npm run build -- --bench` makes it. Files and folders after --data go to data/ in it.
set -eu
file=${1:?gpu-check: name the file to write}
shift
case $file in /*) ;; *) file=$PWD/$file ;; esac
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
tree=$stage/steptrain
mkdir -p "$tree/node-runtime/bin" "$tree/build/Release" "$tree/build/ts" "$tree/node_modules" "$tree/data"
for path in "$@"; do
  [ "$path" != --data ] || continue
  [ -e "$path" ] || { echo "gpu-check: there is no $path" >&2; exit 1; }
  cp -RL "$path" "$tree/data/"
done
cd "$(dirname "$0")/../.."

node scripts/build.mjs --all --bench
node -e 'process.exit(require("./build/Release/steptrain.node").cudaDevices() === undefined ? 1 : 0)' || {
  echo "gpu-check: build/Release/steptrain.node was built without CUDA: put nvcc on PATH and build again" >&2
  exit 1
}
for item in package.json tsconfig.json vitest.config.ts CMakeLists.txt \
  assets binding core cpu cuda src dist recipes test bench examples scripts; do
  cp -R "$item" "$tree/"
done
rm -rf "$tree/bench/results" && mkdir "$tree/bench/results"
cp -R build/ts/. "$tree/build/ts/"
cp build/Release/steptrain.node "$tree/build/Release/"
strip --strip-unneeded "$tree/build/Release/steptrain.node"
cp "$(readlink -f "$(command -v node)")" "$tree/node-runtime/bin/node"
strip "$tree/node-runtime/bin/node"
# What only writes, checks or packages code stays behind, and what only an editor reads.
cp -RL node_modules/. "$tree/node_modules/"
(cd "$tree/node_modules" && rm -rf @biomejs @types typescript cmake-js prebuildify undici-types tar tar-fs tar-stream .cache .vite .vite-temp)
find "$tree/node_modules" "$tree/dist" -type f \
  \( -name '*.map' -o -name '*.d.ts' -o -name '*.d.mts' -o -name '*.d.cts' -o -name '*.md' \) -delete
chmod -R u+w "$tree"
tar -C "$stage" --sort=name --owner=0 --group=0 -c steptrain | xz -T0 -6 > "$file.part"
mv "$file.part" "$file"
bytes=$(wc -c < "$file")
echo "$file: $(awk -v b="$bytes" 'BEGIN { printf "%.1f MiB", b / 1048576 }') ($(du -sm "$tree" | cut -f1) MiB unpacked)"
