// One build at a time in a checkout.
import { linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

/** Waits until nobody else builds, says once that it does, and returns the function that lets the next one build. */
export async function lockBuild(path, say) {
  mkdirSync(dirname(path), { recursive: true });
  for (let said = false; ; said = true) {
    try {
      writeFileSync(path, `${process.pid} ${hostname()}`, { flag: 'wx' });
      return () => rmSync(path, { force: true });
    } catch (error) {
      if (error.code !== 'EEXIST') throw error;
    }
    const owner = read(path);
    if (owner !== undefined && isGone(owner)) take(path, owner);
    else {
      if (!said) say(`waiting for process ${owner}, which builds here (if none does, delete ${path})`);
      await sleep(300);
    }
  }
}

function read(path) {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return undefined;
  }
}

function isGone(owner) {
  const [pid, host] = owner.split(' ');
  if (host !== hostname()) return false;
  try {
    process.kill(Number(pid), 0);
    return false;
  } catch (error) {
    return error.code === 'ESRCH';
  }
}

/** Removes a lock that was left; if another one has taken it meanwhile, that one keeps it. */
function take(path, owner) {
  const aside = `${path}.${process.pid}`;
  try {
    renameSync(path, aside);
    if (read(aside) !== owner) linkSync(aside, path);
  } catch {
    // Another one was faster.
  }
  rmSync(aside, { force: true });
}
