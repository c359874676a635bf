import type { Step } from '../../records/record.js';
import { BadRow } from '../bad-row.js';
import { checkedText, textColumn } from '../columns.js';
import type { Source } from './source.js';

/** The mark that ends each step in column `input`; column `label` has `+` or `-` in its place. */
const STEP_TAG = 'ки';

/**
 * Math-Shepherd: `input` is the problem and the steps, one per line, each ended by the tag `ки`; `label` is the same
 * text with `+` (some continuation reached the answer) or `-` in place of each tag. Step texts keep their `Step k:`.
 */
export const mathShepherd: Source<object> = {
  name: 'math_shepherd',
  columns: "input (steps ended by 'ки'), label (the same text with + and -)",
  matches: (row) => typeof row.input === 'string' && typeof row.label === 'string',
  convert(row) {
    const input = textColumn(row, 'input');
    const marked = textColumn(row, 'label');
    const pieces = input.split(STEP_TAG);
    const tail = pieces.pop() ?? '';
    if (pieces.length === 0) throw new BadRow('no_steps', `column 'input' has no step tag '${STEP_TAG}'`);
    if (tail.trim() !== '') {
      throw new BadRow('unlabelled_tail', `column 'input' has text after its last step tag '${STEP_TAG}'`);
    }
    let at = 0;
    const steps = pieces.map((piece, i): Step => {
      const mark = marked[at + piece.length];
      if (!marked.startsWith(piece, at) || (mark !== '+' && mark !== '-')) {
        throw new BadRow(
          'label_mismatch',
          `column 'label' does not repeat step ${i + 1} of 'input' followed by + or -`,
        );
      }
      at += piece.length + 1;
      return { text: piece.trim(), label: mark === '+' ? 1 : 0, kind: 'normal' };
    });
    if (marked.slice(at).trim() !== '') {
      throw new BadRow('label_mismatch', "column 'label' is longer than column 'input'");
    }
    const first = steps[0]?.text ?? '';
    const marker = first.search(/(?:^|\s)Step 1:/);
    if (marker < 0)
      throw new BadRow('no_first_step', "column 'input' has no 'Step 1:' to tell the problem from the steps");
    const problem = checkedText(first.slice(0, marker).trim(), "the problem in column 'input'");
    return [
      {
        problem,
        steps: steps.map((step, i) => ({
          ...step,
          text: checkedText(i === 0 ? step.text.slice(marker).trim() : step.text, `step ${i + 1}`),
        })),
      },
    ];
  },
};
