// A vitest reporter for gpu-check.sh: one line of JSON per finished test in $STEPTRAIN_CHECK_TESTS, so that a run that
// is stopped keeps what it found.
import { appendFileSync } from 'node:fs';

const path = process.env.STEPTRAIN_CHECK_TESTS;

function note(entry) {
  if (path) appendFileSync(path, `${JSON.stringify(entry)}\n`);
}

const messages = (errors = []) => errors.map(({ message }) => `${message}`.slice(0, 500));

export default class {
  onTestCaseResult(test) {
    const { state, errors } = test.result();
    if (state === 'skipped') return;
    note({
      name: test.fullName,
      state,
      milliseconds: Math.round(test.diagnostic()?.duration ?? 0),
      ...(state === 'failed' ? { errors: messages(errors) } : {}),
    });
  }
  onTestModuleEnd(module) {
    const errors = messages(module.errors());
    if (errors.length > 0)
      note({ name: module.relativeModuleId ?? module.moduleId, state: 'failed', errors });
  }
}
