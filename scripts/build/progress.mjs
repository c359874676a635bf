// How far a compilation is: which unit of how many, and about how much time is left.
import { existsSync, openSync, readFileSync, statSync, writeSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { SECONDS } from './seconds.mjs';

/** A line for those who do not see one overwritten in place. */
const SILENT_MS = 30_000;

/** Where people look: stderr, or the terminal where npm keeps stderr to itself, as scripts/prepare.mjs says. */
const screen = openScreen();

function openScreen() {
  if (process.env.STEPTRAIN_SCREEN !== 'terminal') return { fd: 2, inPlace: process.stderr.isTTY === true };
  try {
    return { fd: openSync('/dev/tty', 'w'), inPlace: true };
  } catch {
    return { fd: 2, inPlace: false };
  }
}

/** A line of its own. */
export function say(line) {
  writeSync(screen.fd, `${screen.inPlace ? '\r\x1b[K' : ''}steptrain: ${line}\n`);
}

/** `12 s`, `3 min`. */
export function duration(seconds) {
  const whole = Math.round(seconds);
  return whole < 100 ? `${Math.max(1, whole)} s` : `${Math.round(seconds / 60)} min`;
}

/** The objects of a CMake build that are older than what they are made of, each with processor seconds that it takes about. */
export function outdated(build) {
  const commands = JSON.parse(readFileSync(join(build, 'compile_commands.json'), 'utf8'));
  const times = new Map();
  const changed = (file) => {
    if (!times.has(file))
      times.set(file, existsSync(file) ? statSync(file).mtimeMs : Number.POSITIVE_INFINITY);
    return times.get(file);
  };
  return commands
    .map(({ command }) => / -o (\S+)/.exec(command)[1])
    .filter((output) => {
      const object = join(build, output);
      if (!existsSync(object) || !existsSync(`${object}.d`)) return true;
      const flags = join(build, /^CMakeFiles\/[^/]*\.dir\//.exec(output)[0], 'flags.make');
      const read = readFileSync(`${object}.d`, 'utf8').replaceAll('\\\n', ' ').split(/\s+/).slice(1);
      const made = statSync(object).mtimeMs;
      return [flags, ...read].some((file) => file !== '' && changed(resolve(build, file)) > made);
    })
    .map((output) => ({ output, seconds: secondsOf(output) }));
}

/** `avx2/cpu_gemm.cc` of CMakeFiles/kernels_avx2.dir/units/cpu_gemm.cc.o. */
export function unitName(output) {
  const [, target, path] = /CMakeFiles\/(\w+)\.dir\/(.*)\.o$/.exec(output);
  return `${target.replace(/^kernels_/, '')}/${path.replace(/^units\//, '')}`;
}

function secondsOf(output) {
  const name = unitName(output);
  return SECONDS[name] ?? SECONDS[name.replace(/^\w+\//, '')] ?? (output.endsWith('.cu.o') ? 18 : 5);
}

/** Follows a compilation by the lines that make prints. */
export class Progress {
  #processors;
  /** Units that have not begun, with their seconds. */
  #waiting;
  #total;
  #begun = [];
  #began = performance.now();
  #shown = Number.NEGATIVE_INFINITY;
  #timer;

  constructor(units, processors) {
    this.#processors = processors;
    this.#waiting = new Map(units.map(({ output, seconds }) => [output, seconds]));
    this.#total = sum(this.#waiting.values());
    if (screen.inPlace) this.#timer = setInterval(() => this.#show(), 1000).unref();
  }

  line(text) {
    const output = /Building \w+ object (\S+)/.exec(text)?.[1];
    if (output === undefined) return;
    this.#begun.push({
      name: unitName(output),
      seconds: this.#waiting.get(output) ?? 0,
      at: performance.now(),
    });
    this.#waiting.delete(output);
    this.#show();
  }

  end() {
    clearInterval(this.#timer);
    if (screen.inPlace) writeSync(screen.fd, '\r\x1b[K');
  }

  #show() {
    const now = performance.now();
    const last = this.#begun.at(-1);
    if (!last || (!screen.inPlace && now - this.#shown < SILENT_MS)) return;
    this.#shown = now;
    const count = `${this.#begun.length} of ${this.#begun.length + this.#waiting.size}`;
    const text = `steptrain: compiling ${last.name}, ${count}, about ${duration(this.remaining(now))} left`;
    writeSync(screen.fd, screen.inPlace ? `\r\x1b[K${text}` : `${text}\n`);
  }

  /**
   * Seconds at the speed so far. It begins as that of the machine where SECONDS were measured, which counts as an eighth of the
   * work, so that what is left does not jump where the first units end.
   */
  remaining(now = performance.now()) {
    const elapsed = (now - this.#began) / 1000;
    const running = this.#begun.slice(-this.#processors);
    const done = sum(this.#begun.slice(0, -this.#processors).map(({ seconds }) => seconds));
    const before = this.#total / 8;
    const partly = (slowness) =>
      running.map(({ seconds, at }) => Math.min(0.9 * seconds, (now - at) / 1000 / slowness));
    // How much of the running units is done depends on the speed, and the speed on that.
    let [least, most] = [1e-3, 1e3];
    for (let pass = 0; pass < 40; pass++) {
      const slowness = Math.sqrt(least * most);
      const taken = slowness * (before + done + sum(partly(slowness)));
      if (taken < before + elapsed * this.#processors) least = slowness;
      else most = slowness;
    }
    const rest = partly(least).map((each, i) => running[i].seconds - each);
    const all = (sum(this.#waiting.values()) + sum(rest)) / this.#processors;
    return least * Math.max(all, ...rest);
  }
}

const sum = (numbers) => [...numbers].reduce((total, each) => total + each, 0);
