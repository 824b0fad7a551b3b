#!/bin/sh
# Checks Setun on this machine's first GPU in under four minutes (after building): kernels, golden models, and a synthetic
# model of 2 billion ternary weights, with as many tokens as the device's speed allows; writes one JSON file, for docs/gpu.md.
# A part that takes longer than its share is stopped, which the file says: "cut", and "complete": false. Speed may be cut;
# a check of results that is cut has failed, since a device may hang.
# usage: tools/gpu-check.sh [--build FOLDER] [-o FILE]
#   --build FOLDER  a build that was brought along (with tests); otherwise build-gpu/ is built from these sources
#   -o FILE         default gpu-check.json
# Exit status: 0 (also where speed was cut), 1 when a check failed, 77 without a GPU that can be used.
set -eu
cd "$(dirname "$0")/.."
build='' device=vulkan:0 out=gpu-check.json
while [ $# -gt 0 ]; do
  case $1 in
    --build) build=$2 ;;
    -o) out=$2 ;;
    *)
      sed -n '6,9s/^# \{0,1\}//p' "$0" >&2
      exit 2
      ;;
  esac
  shift 2
done

if [ -z "$build" ]; then
  build=build-gpu
  cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DSETUN_TESTS=ON >"$build.log" 2>&1 &&
    cmake --build "$build" -j --target setun model_device_operations model_device_experts model_device_start \
      model_backends >>"$build.log" 2>&1 || {
    tail -20 "$build.log" >&2
    exit 1
  }
fi
setun=$build/setun
if ! "$setun" devices --json | python3 -c 'import json, sys
sys.exit(not any(d["name"] == sys.argv[1] and "problem" not in d for d in json.load(sys.stdin)))' "$device"; then
  echo "gpu-check.sh: $device cannot be used here:" >&2
  "$setun" devices >&2
  exit 77
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
start=$(date +%s) all=230
# run NAME SECONDS COMMAND...: its output, exit status and seconds; not longer than what is left of all.
run() {
  name=$1 limit=$2 status=0 begun=$(date +%s)
  shift 2
  left=$((start + all - begun))
  [ "$limit" -le "$left" ] || limit=$left
  if [ "$limit" -gt 0 ]; then
    timeout -k 2 "$limit" "$@" >"$folder/$name.out" 2>"$folder/$name.err" || status=$?
  else
    status=124 limit=0
  fi
  echo "$status $(($(date +%s) - begun)) $limit" >"$folder/$name.status"
  case $status in
    0) said=passed ;;
    124 | 137) said="cut after $limit s" ;;
    *) said="failed ($status)" ;;
  esac
  echo "gpu-check.sh: $name: $said"
}

prompt="Once upon a time there was a little"
run start 30 "$build/tests/model_device_start"
run text_cpu 20 "$setun" run models/setun-tales-7m -p "$prompt" -n 40 --temp 0 --ids
run text_gpu 30 "$setun" run models/setun-tales-7m -p "$prompt" -n 40 --temp 0 --ids --device "$device"
run kernels 60 "$build/tests/model_device_operations" --seconds 10
run experts 30 "$build/tests/model_device_experts" --seconds 5
run golden 60 "$build/tests/model_backends"
run pace 20 "$setun" bench models/setun-tales-7m --device "$device" --json -p 64 -n 16 -r 1
run count 50 "$setun" bench --synthetic 2b4t --device "$device" --count --json

# As many tokens of the larger model as take a quarter of the time that is left, at the pace of the small one by multiply-adds.
"$setun" plan --shape 2b4t --device "$device" --json >"$folder/plan.out" 2>&1 || true
tokens=$(python3 - "$folder" "$((start + all - $(date +%s)))" <<'END'
import json, os, sys
folder, left = sys.argv[1], float(sys.argv[2])
try:
    pace, plan = (json.load(open(os.path.join(folder, name + ".out"), encoding="utf-8")) for name in ("pace", "plan"))
    slower = plan["macs_per_token"] / pace["macs_per_token"]
    most = [int(left / 4 * pace[kind + "_tokens_per_s"] / slower) for kind in ("prefill", "decode")]
except (OSError, ValueError, KeyError, TypeError):
    most = [0, 0]  # the part that failed says why
print(max(1, min(512, most[0])), max(1, min(64, most[1])))
END
)
run speed 90 "$setun" bench --synthetic 2b4t --device "$device" --json -r 1 -p "${tokens% *}" -n "${tokens#* }"

python3 - "$folder" "$out" "$device" "$setun" "$(($(date +%s) - start))" <<'END'
import json, os, subprocess, sys
folder, out, device, setun, seconds = sys.argv[1:]
def read(name):
    if not os.path.exists(os.path.join(folder, name)):
        return ""
    with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
        return file.read()
found = [d for d in json.loads(subprocess.run([setun, "devices", "--json"], stdout=subprocess.PIPE, check=True).stdout)
         if d["name"] == device]
result = {"device": found[0], "version": subprocess.run([setun, "--version"], stdout=subprocess.PIPE).stdout.decode().strip(),
          "seconds": int(seconds), "checks": {}}
SPEEDS = ("pace", "count", "speed")
FULL = {"prefill_tokens": 512, "decode_tokens": 64}  # of `speed`, on a device that is fast enough
for name in ("start", "text_cpu", "text_gpu", "kernels", "experts", "golden", "pace", "count", "speed"):
    status, took, limit = map(int, read(name + ".status").split())
    check = result["checks"][name] = {"passed": status == 0, "seconds": took}
    if status in (124, 137):
        check["cut"] = f"stopped after {limit} s" if limit else "not begun: no time was left"
    elif status:
        check["error"] = (read(name + ".err") or read(name + ".out"))[-2000:]
    elif name in SPEEDS:
        check["result"] = json.loads(read(name + ".out"))
    if name == "speed" and "result" in check:
        fewer = [f"{check['result'][key]} of {n} {key}" for key, n in FULL.items() if check["result"][key] < n]
        if fewer:
            check["cut"] = ", ".join(fewer) + ": the device is slow"
checks = result["checks"]
if checks["text_cpu"]["passed"] and checks["text_gpu"]["passed"]:
    checks["same_text"] = {"passed": read("text_cpu.out") == read("text_gpu.out")}
result["complete"] = not any("cut" in c for c in checks.values())
result["passed"] = all(c["passed"] or ("cut" in c and name in SPEEDS) for name, c in checks.items())
with open(out, "w", encoding="utf-8") as file:
    json.dump(result, file, indent=1)
    file.write("\n")
print(f"{out}: {'failed' if not result['passed'] else 'passed' if result['complete'] else 'passed, with parts cut,'} "
      f"on {found[0]['description']}")
sys.exit(not result["passed"])
END
