// A vitest reporter for run.sh: a line of JSON per finished test in $STEPTRAIN_LINES, so that a run that is stopped keeps
// what it found. $STEPTRAIN_SET names the tests.
import { appendFileSync } from 'node:fs';

const { STEPTRAIN_LINES: path, STEPTRAIN_SET: set } = process.env;

function note(entry) {
  if (path) appendFileSync(path, `${JSON.stringify({ kind: 'test', set, ...entry })}\n`);
}

const messages = (errors = []) => errors.map(({ message }) => `${message}`.slice(0, 500));

export default class {
  onTestCaseResult(test) {
    const { state, errors } = test.result();
    if (state === 'skipped') return;
    const took = Math.round(test.diagnostic()?.duration ?? 0);
    note({
      name: test.fullName,
      state,
      ms: took,
      ...(state === 'failed' ? { errors: messages(errors) } : {}),
    });
  }
  onTestModuleEnd(module) {
    const errors = messages(module.errors());
    if (errors.length > 0)
      note({ name: module.relativeModuleId ?? module.moduleId, state: 'failed', errors });
  }
}
