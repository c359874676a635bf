#!/bin/bash
# Checks a GPU, part by part, without network and without a Node of its own:
#   scripts/device/run.sh [option …] OUT [part …]        tests models main ours rival choice sanitize arrivals suite, or those named
# Parts, which run in the order given; `part:a,b` takes some of what a part has:
#   tests     op and CUDA tests on cuda:0
#   models    models, autograd and objectives there
#   suite     the rest of the tests with STEPTRAIN_TEST_DEVICE=cuda:0
#   ours      our benches: gemm rows lora attention head kernels step decode prefill, a process each
#   rival     PyTorch's, by its own ways, cuDNN, transformers and Liger: ops step liger decode prefill
#   choice    each successor of a kernel (cuda/runtime/choice.h) by name: its tests, then both kernels timed in turn
#   sanitize  compute-sanitizer over the kernels' tests, in parallel
#   arrivals  the addon in which every lane arrives at barriers: attention's bits beside the other's, its tests, racecheck
#   main      stepamc_arithmetic, whole
#   trials    every executable trials/NAME/run.sh, in parallel; it gets a folder of its own, of which trials.tar.gz is made.
#             `flock "$GPU_LOCK" COMMAND` there keeps the GPU to itself while it is timed
# Options:
#   --pack FILE       unpacks what pack.sh made, unless it is unpacked already
#   --seconds N       ends after N seconds: parts get what is left, those that find nothing left are named
#   --tiny            small cases and few tests: to try this script on an emulated GPU
# OUT gets lines.jsonl, which report.mjs reads, as results come, and log.txt. Every part has a limit of its own, and a
# part that is stopped or fails does not keep the next from running. A second call with the same OUT adds to it.
set -u
cd "$(dirname "$0")/../.." || exit 1
complain() {
  echo "run.sh: $*" >&2
  exit 1
}
pack= budget=100000 tiny=
while [[ ${1:-} == --* ]]; do
  case $1 in
    --help) sed -n '2,/^set -u/{/^# \{0,1\}/s///p;}' scripts/device/run.sh && exit ;;
    --tiny) tiny=--tiny && shift && continue ;;
    --pack) pack=${2:-} ;;
    --seconds) budget=${2:-} ;;
    *) complain "no option '$1'; see --help" ;;
  esac
  shift 2 || complain "$1 needs a value; see --help"
done
[[ $budget =~ ^[0-9]+$ ]] || complain "--seconds takes a whole number, not '$budget'"
(($# > 0)) || complain "name the folder for the results; see --help"
OUT=$({ mkdir -p "$1" && cd "$1" && pwd && : >> lines.jsonl && : >> log.txt; } 2> /dev/null) ||
  complain "$1 is no folder that can be written: name another for the results"
# A call that was killed may have left half a line.
[[ -z $(tail -c 1 "$OUT/lines.jsonl") ]] || echo >> "$OUT/lines.jsonl"
shift
declare -A CHOICES=([tests]= [models]= [main]= [suite]= [arrivals]= [trials]=any [choice]=any
  [ours]='gemm rows lora attention head kernels step decode prefill' [rival]='ops step liger decode prefill'
  [sanitize]='memcheck-gemm memcheck-attention memcheck-head memcheck-rest racecheck-attention racecheck-gemm racecheck-head
    initcheck-attention')
(($#)) || set -- tests models main ours rival choice sanitize arrivals suite
for part; do
  [[ -v CHOICES[${part%%:*}] ]] || complain "no part '$part'; see --help"
  [[ $part == *:* && ${CHOICES[${part%%:*}]} != any ]] || continue
  for name in $(tr , ' ' <<< "${part#*:}"); do
    [[ " $(echo ${CHOICES[${part%%:*}]}) " == *" $name "* ]] ||
      complain "${part%%:*} has no '$name'; expected $(echo ${CHOICES[${part%%:*}]:-no choice})"
  done
done

if [[ -n $pack ]]; then
  [[ -r $pack ]] || complain "there is no file $pack"
  sum=$(cksum "$pack") || exit 1
  if [[ $(cat build/device.unpacked 2> /dev/null) != "$sum" ]]; then
    tar -xiJf "$pack" 2> /dev/null || python3 -c 'import lzma, sys, tarfile
tarfile.open(fileobj=lzma.open(sys.argv[1]), mode="r|", ignore_zeros=True).extractall(".")' "$pack" || complain "$pack cannot be unpacked"
    echo "$sum" > build/device.unpacked
    echo "[$SECONDS s] unpacked $pack"
  fi
fi
[[ -x build/node/bin/node ]] && PATH=$PWD/build/node/bin:$PATH
command -v node > /dev/null || complain "no node in build/node/bin or on the PATH: give --pack FILE"

work=$(mktemp -d)
mkdir "$work/running"
# A part is a group of processes, of which those that outlive it, or this script, are killed: they would hold the GPU.
trap 'for group in "$work"/running/*; do kill -KILL -- "-${group##*/}"; done 2> /dev/null; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
export PATH NO_COLOR=1 STEPTRAIN_LINES=$OUT/lines.jsonl STEPTRAIN_BENCH_DEVICE=cuda:0 GPU_LOCK=$work/gpu
export STEPTRAIN_THREADS=${STEPTRAIN_THREADS:-2}
BENCH=build/ts/bench/device.js
patience=25000 # of a test, in milliseconds
[[ -z $tiny ]] || patience=3600000
workers=$((($(nproc) * 3 + 3) / 4))


line() { # kind, name, value, …: appends them to the lines as JSON
  node -e 'const [kind, ...rest] = process.argv.slice(1); const entry = { kind };
    for (let i = 0; i < rest.length; i += 2) entry[rest[i]] = /^-?\d+$/.test(rest[i + 1]) ? +rest[i + 1] : rest[i + 1];
    console.log(JSON.stringify(entry));' "$@" >> "$STEPTRAIN_LINES"
}
# Seconds for what takes $1 on a GPU. An emulated one is a processor's program: it gets five times as long, and as many times
# that as programs want each processor.
within() {
  [[ -n $tiny ]] || { echo "$1" && return; }
  awk -v limit="$1" -v processors="$(nproc)" '{ print int(limit * 5 * (1 + $1 / processors)) }' /proc/loadavg
}
limited() { # name, seconds, command …: its output goes to $work/NAME.log and then to log.txt
  local name=$1 limit began=$SECONDS code
  limit=$(within "$2")
  shift 2
  ((budget - SECONDS >= limit)) || limit=$((budget - SECONDS))
  if ((limit < 5)); then
    echo "[$SECONDS s] $name: not begun, no time left"
    line part name "$name" code -1 seconds 0
    touch "$work/failed"
    return 1
  fi
  timeout -k 5 "$limit" "$@" > "$work/$name.log" 2>&1 &
  local group=$!
  touch "$work/running/$group"
  wait "$group"
  code=$?
  kill -KILL -- "-$group" 2> /dev/null
  rm -f "$work/running/$group"
  ((code == 0)) || touch "$work/failed"
  { echo "== $name: $*" && tail -c 400000 "$work/$name.log"; } >> "$OUT/log.txt"
  line part name "$name" code "$code" seconds $((SECONDS - began))
  case $code in
    0) echo "[$SECONDS s] $name: done in $((SECONDS - began)) s" ;;
    124 | 137) echo "[$SECONDS s] $name: stopped at its limit of $limit s" ;;
    *) echo "[$SECONDS s] $name: exit code $code, $((SECONDS - began)) s" ;;
  esac
  if ((code != 0)) && command -v nvidia-smi > /dev/null && ! smi -L > /dev/null; then
    echo "[$SECONDS s] after $name the GPU does not answer: what follows says nothing of its own" | tee -a "$OUT/log.txt"
    line gpu after "$name" state 'no answer'
  fi
  return "$code"
}
vitest() { # name, seconds, workers, arguments …
  local name=$1 limit=$2 count=$3
  shift 3
  STEPTRAIN_SET=$name limited "$name" "$limit" node node_modules/vitest/vitest.mjs run --reporter=dot \
    --reporter=./scripts/device/tests.mjs --maxWorkers="$count" --testTimeout="$patience" --hookTimeout="$patience" "$@"
}
chosen() { # the parts of $selected, or all that follow
  [[ -z $selected ]] && echo "$*" || echo "${selected//,/ }"
}
cases() { # writes $work/cases.json
  [[ -s $work/cases.json ]] && return
  limited cases 30 bash -c "node $BENCH --list $tiny > '$work/cases.part'" && mv "$work/cases.part" "$work/cases.json"
}
of_cases() { node -p "const c = JSON.parse(require('fs').readFileSync('$work/cases.json', 'utf8')); $1" "${@:2}"; }
smi() { # what nvidia-smi says, which hangs where the driver does
  timeout -k 2 10 nvidia-smi "$@" 2> /dev/null
}
clocks() {
  line clocks at "$1" now "$(smi --query-gpu=clocks.sm,power.draw,temperature.gpu,memory.used --format=csv,noheader)"
}

tests() {
  local files='test/ops test/cuda test/runtime/memory-limit.test.ts'
  [[ -z $tiny ]] || files=test/cuda/optimizer.test.ts
  vitest ops 90 "$workers" $files -t cuda
}
models() {
  local files='test/models test/autograd test/objectives'
  [[ -z $tiny ]] || files=test/objectives/preference.test.ts
  STEPTRAIN_TEST_DEVICE=cuda:0 vitest models 60 "$workers" $files
}
suite() {
  local files package file without=()
  # Tests of packages that the pack leaves behind.
  for package in openai playwright-core typescript; do
    [[ -d node_modules/$package ]] || while read -r file; do without+=(--exclude "$file"); done < <(grep -rlF "$package" test --include='*.test.ts')
  done
  files=$(ls -d test/*/ | grep -vE '^test/(ops|cuda|models|autograd|objectives|scripts|docs|golden)/')
  [[ -z $tiny ]] || files=test/random
  STEPTRAIN_TEST_DEVICE=cuda:0 vitest suite 150 "$workers" $files "${without[@]}"
}
ours() {
  local -A seconds=([gemm]=15 [rows]=18 [lora]=10 [attention]=15 [head]=12 [kernels]=14 [step]=25 [decode]=25 [prefill]=12)
  local group
  clocks before-ours
  for group in $(chosen ${CHOICES[ours]}); do
    limited "ours-$group" $((seconds[$group] + 15)) node $BENCH "$group" --budget "$(within "${seconds[$group]}")" \
      --out "$STEPTRAIN_LINES" $tiny ${tiny:+--seconds 0.001}
  done
  clocks after-ours
}
rival() {
  local -A groups=([ops]='gemm rows lora attention head kernels' [step]=step [liger]=liger [decode]=decode [prefill]=prefill)
  local -A seconds=([ops]=50 [step]=30 [liger]=40 [decode]=40 [prefill]=15)
  local name wheel
  for wheel in build/wheels/*.whl; do
    [[ -f $wheel ]] && python3 -m zipfile -e "$wheel" "$work/site"
  done
  cases || return
  for name in $(chosen ${CHOICES[rival]}); do
    PYTHONPATH=$work/site${PYTHONPATH:+:$PYTHONPATH} limited "rival-$name" $((seconds[$name] + 20)) python3 scripts/device/rival.py \
      "$work/cases.json" "$STEPTRAIN_LINES" --budget "$(within "${seconds[$name]}")" ${groups[$name]}
  done
}
choice() {
  local name names
  cases || return
  names=$(chosen $(of_cases "Object.keys(c.successors).join(' ')"))
  for name in $names; do
    STEPTRAIN_KERNELS=$name vitest "choice-$name" 60 4 $(of_cases "c.successors[process.argv[1]].tests.join(' ')" "$name") \
      -t "${tiny:+none of }cuda" &
  done
  wait
  for name in $names; do
    limited "choice-$name-benches" 50 node $BENCH --choice "$name" --budget 35 --out "$STEPTRAIN_LINES" \
      --seconds 0.15 $tiny ${tiny:+--seconds 0.001}
  done
}
sanitizer() { # tool, name, tests …
  local tool=$1 name=$1-$2 log=$work/$1-$2.log
  shift 2
  [[ " $(chosen $name) " == *" $name "* ]] || return
  STEPTRAIN_SET=$name limited "$name" 90 compute-sanitizer --tool "$tool" --target-processes all --print-limit 10000 --error-exitcode 9 \
    node node_modules/vitest/vitest.mjs run --reporter=dot --reporter=./scripts/device/tests.mjs --maxWorkers=1 \
    --testTimeout=60000 --hookTimeout=60000 -t cuda "$@"
  # Each process of the tests ends with a summary of its own; racecheck's has what it found in brackets.
  line sanitizer tool "$tool" name "$name" version "$version" errors \
    "$(grep -E 'SUMMARY: [0-9]+ (error|hazard)' "$log" | grep -v printed | grep -oE '[0-9]+ (error|warning)' | awk '{ sum += $1 } END { print NR ? sum : -1 }')" \
    kernels "$(grep -E '^=+ .* at ' "$log" | grep -oE '\w+_kernel(<[^>]*>)?' | sort -u)" \
    first "$(grep -m 3 -E '^=+ (Invalid|Error:|Warning:|Race|Barrier|Uninitialized|Program hit)' "$log" | cut -c 1-300)"
}
sanitizing() { # name: sets version, or notes that there is no sanitizer
  if ! command -v compute-sanitizer > /dev/null; then
    echo "[$SECONDS s] $1: no compute-sanitizer on the PATH"
    line part name "$1" code 127 seconds 0
    return 1
  fi
  version=$(compute-sanitizer --version | grep -i version | head -n 1)
}
sanitize() {
  local version
  sanitizing sanitize || return
  sanitizer memcheck gemm test/ops/gemm.test.ts &
  sanitizer memcheck attention test/ops/attention.test.ts test/ops/attention-paged.test.ts &
  sanitizer memcheck head test/ops/head.test.ts test/cuda/few-rows.test.ts test/ops/sampling.test.ts test/ops/objective &
  sanitizer memcheck rest test/ops/norm.test.ts test/ops/optimizer.test.ts test/ops/embedding.test.ts test/ops/rope.test.ts test/ops/advantage &
  sanitizer racecheck attention test/cuda/attention.test.ts &
  sanitizer racecheck gemm test/cuda/gemm.test.ts test/cuda/few-rows.test.ts &
  sanitizer racecheck head test/cuda/head.test.ts test/cuda/norm.test.ts &
  sanitizer initcheck attention test/cuda/attention.test.ts test/cuda/attention-paged.test.ts &
  wait
}
arrivals() {
  local other=$PWD/build/Release/steptrain-every-lane.node bits=scripts/device/attention-bits.mjs only=cuda differ version
  [[ -z $tiny ]] || only='heads of 128: bits'
  limited arrivals-addon 5 test -f "$other" || return
  if limited arrivals-bits 40 bash -c "node $bits $tiny > '$work/bits'" &&
    STEPTRAIN_ADDON=$other limited arrivals-other-bits 40 bash -c "node $bits $tiny > '$work/other-bits'"; then
    differ=$(diff "$work/bits" "$work/other-bits" | sed -n 's/^< \(.*\) .*/\1/p' | paste -sd, -)
    line arrivals same "$(cmp -s "$work/bits" "$work/other-bits" && echo yes || echo no)" cases "$(wc -l < "$work/bits")" differ "$differ"
  fi
  STEPTRAIN_ADDON=$other vitest arrivals 60 "$workers" test/cuda/attention.test.ts -t "$only"
  sanitizing racecheck-arrivals || return
  STEPTRAIN_ADDON=$other sanitizer racecheck arrivals test/cuda/attention.test.ts
}
main() {
  local few=
  [[ -z $tiny ]] || few='--set data.arithmetic.samples=20 --set sft.max_steps=1 --set reward_network.max_steps=1 --set ppo.max_iterations=1
    --set sft.tokens_per_step=64 --set sft.micro_batch_tokens=64 --set reward_network.tokens_per_step=64 --set reward_network.micro_batch_tokens=64
    --set ppo.rollout_batch=4 --set ppo.num_ppo_epochs=1 --set ppo.num_mini_batches=1 --set ppo.micro_batch_tokens=128
    --set data.arithmetic.steps=2 --set data.max_length=64 --set eval.max_samples=2'
  limited main 90 node dist/cli/main.js run stepamc_arithmetic --output "$work/run" --set run.device=cuda:0 $few
  [[ ! -f $work/run/eval.json ]] ||
    node -p 'JSON.stringify({ kind: "main", eval: JSON.parse(require("fs").readFileSync(process.argv[1], "utf8")) })' \
      "$work/run/eval.json" >> "$STEPTRAIN_LINES" 2>> "$OUT/log.txt"
}
trials() {
  local trial name
  for name in $(chosen); do
    [[ -x trials/$name/run.sh ]] || limited "trial-$name" 5 bash -c "echo 'there is no executable trials/$name/run.sh' && exit 1"
  done
  for trial in trials/*/run.sh; do
    name=$(basename "$(dirname "$trial")")
    [[ -x $trial && (-z $selected || ,$selected, == *,$name,*) ]] || continue
    mkdir -p "$work/trials/$name"
    limited "trial-$name" 60 "$trial" "$work/trials/$name" &
  done
  wait
  [[ ! -d $work/trials ]] || tar -C "$work" -czf "$OUT/trials.tar.gz" trials
}

if timeout -k 2 60 node scripts/device/machine.mjs \
  "$(smi --query-gpu=name,driver_version,clocks.max.sm,memory.total --format=csv,noheader)" \
  "$(timeout 60 python3 -c 'import torch; print("torch", torch.__version__)' 2> /dev/null)" > "$work/machine"; then
  tee -a "$STEPTRAIN_LINES" < "$work/machine"
else
  line machine started "$(date -u +%FT%TZ)" gpu unknown
fi
for part; do
  selected=
  [[ $part == *:* ]] && selected=${part#*:}
  "${part%%:*}"
done
echo "[$SECONDS s] results in $OUT"
[[ ! -f $work/failed ]]
