#!/bin/bash
# Rehearses the check of a GPU on an emulated one: packs, unpacks in an empty folder with a PATH that has neither node nor
# npm, runs every part at its smallest, and sums up.
#   npm run test:device [-- part …]
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD
node scripts/build.mjs
node test/cuda/emulator/build.mjs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree" "$work/path" "$work/tree/trials"
# The emulator's addon stands in for the one in which every lane arrives, too: rehearsed is that both run and are compared.
emulated=build/emulated/build/Release/steptrain.node
scripts/device/pack.sh "$work/pack.tar.xz" --addon $emulated --every-lane $emulated
git ls-files -z --cached --others --exclude-standard | while IFS= read -rd '' file; do
  [[ ! -e $file ]] || printf '%s\0' "$file" # one that is deleted is still listed
done | tar --null -T - -c | tar -x -C "$work/tree"
mkdir "$work/tree/trials/greets" && cat > "$work/tree/trials/greets/run.sh" << 'TRIAL'
#!/bin/sh
echo "hello from $(basename "$(dirname "$0")")" > "$1/said"
TRIAL
chmod +x "$work/tree/trials/greets/run.sh"
find /usr/bin /bin -maxdepth 1 \( -type f -o -type l \) ! -name 'node*' ! -name 'np[mx]' -exec ln -sf -t "$work/path" {} +

parts=("$@")
((${#parts[@]})) || parts=(tests models main ours rival choice sanitize arrivals suite trials)
(
  cd "$work/tree"
  export PATH=$work/path STEPTRAIN_EMULATED_CAPABILITY=90
  ! command -v node || exit 1
  scripts/device/run.sh --tiny --seconds 5400 --pack "$work/pack.tar.xz" "$work/out" "${parts[@]}" ||
    echo "a part did not pass; see below"
)
node scripts/device/report.mjs "$work/out" --results "$work/results" | tee "$work/said"
# What the machine of a rehearsal may lack is PyTorch and compute-sanitizer; everything else must have gone well.
node scripts/device/rehearsed.mjs "$work/out/lines.jsonl" "${parts[@]}"
if [[ -f $work/out/trials.tar.gz ]]; then
  [[ $(tar -xzOf "$work/out/trials.tar.gz" trials/greets/said) == 'hello from greets' ]]
fi
echo "rehearsed: $(wc -l < "$work/out/lines.jsonl") lines"
